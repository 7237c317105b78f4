// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/trainer/trainer.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>

#include "c10d/env.h"
#include "c10d/parallel/ddp.h"
#include "c10d/parallel/sampler.h"
#include "examples/training/nn/errors.h"
#include "examples/training/trainer/agreement.h"

namespace nn {
namespace {

using Clock = std::chrono::steady_clock;
using namespace c10d::parallel;

// Of the terminal that shows this rank's bar, its own or the launcher's; 0: none does.
int bar_columns(int rank) {
  if (rank != 0) return 0;
  winsize size{};
  if (isatty(2) == 1 && ioctl(2, TIOCGWINSZ, &size) == 0)
    return size.ws_col == 0 ? 80 : size.ws_col;
  return static_cast<int>(c10d::env_integer("C10D_TERMINAL_COLUMNS", 1, 65'535).value_or(0));
}

// A line that is written over itself, on the terminal of rank 0; elsewhere nothing.
class Progress {
 public:
  Progress(const Task& task, int rank) : task_(task), columns_(bar_columns(rank)) {}
  ~Progress() { clear(); }
  void begin_epoch(std::uint64_t steps_done) {
    begin_ = Clock::now();
    first_ = steps_done;
    samples_ = 0;
  }
  void step(std::uint64_t epoch, std::uint64_t steps_done, std::size_t samples, double loss) {
    samples_ += samples;
    if (columns_ == 0 || Clock::now() - last_ < std::chrono::milliseconds(100)) return;
    last_ = Clock::now();
    const auto total = static_cast<std::uint64_t>(task_.steps_per_epoch());
    const std::uint64_t done = steps_done - epoch * total;
    const double seconds = seconds_since_begin();
    const double left =
        seconds / static_cast<double>(steps_done - first_) * static_cast<double>(total - done);
    const std::string name = fmt::format("epoch {}/{} ", epoch + 1, task_.options.epochs);
    const std::string figures =
        fmt::format(" {}/{}  loss {:.4f}  {:.0f} samples/s  ETA {:.0f} s", done, total, loss,
                    static_cast<double>(samples_) / seconds, left);
    const int room = columns_ - 3 - static_cast<int>(name.size() + figures.size());
    const int width = std::clamp(room, 0, 24);
    const int filled = static_cast<int>(static_cast<std::uint64_t>(width) * done / total);
    const std::string bar = fmt::format("[{:<{}}]", std::string(filled, '='), width);
    std::fputs((name + (width == 0 ? "" : bar) + figures + end_).c_str(), stderr);
  }
  void clear() const {
    if (columns_ > 0) std::fputs(end_, stderr);
  }
  double rate() const { return static_cast<double>(samples_) / seconds_since_begin(); }

 private:
  double seconds_since_begin() const {
    return std::max(1e-9, std::chrono::duration<double>(Clock::now() - begin_).count());
  }
  const Task& task_;
  int columns_;
  // Of the bar; the launcher erases what stood behind it by itself.
  const char* end_ = isatty(2) == 1 ? "\033[K\r" : "\r";
  Clock::time_point begin_{}, last_{};
  std::uint64_t first_ = 0;
  std::size_t samples_ = 0;
};

constexpr std::int64_t kBatch = 32;  // of tests

// The first `samples` of the test data, in batches that are dealt to the ranks: the figures do not
// depend on their number.
Score evaluate(const Task& task, const WholeValues& values, std::int64_t samples,
               c10d::ProcessGroup& group) {
  const DataSet& test = task.data.test;
  Net net(task.model, 1);
  for (std::size_t i = 0; i < values.at.size(); ++i)
    net.values[i] = const_cast<float*>(values.at[i]);
  const int nodes = static_cast<int>(task.model.nodes.size());
  const std::int64_t batches = (samples + kBatch - 1) / kBatch;
  std::vector<double> sums(static_cast<std::size_t>(batches) * 2);
  std::vector<float> input;
  std::vector<std::int32_t> labels;
  for (std::int64_t batch = group.rank(); batch < batches; batch += group.size()) {
    std::vector<std::int64_t> numbers(
        static_cast<std::size_t>(std::min(kBatch, samples - batch * kBatch)));
    std::iota(numbers.begin(), numbers.end(), batch * kBatch);
    input.resize(numbers.size() * count_of(test.sample));
    labels.resize(numbers.size() * static_cast<std::size_t>(test.labels_per_sample));
    test.copy_samples(numbers, input.data(), labels.data());
    net.place(0, static_cast<std::int64_t>(numbers.size()), false);
    net.set_output(kModelInput, 0, input.data());
    net.forward(0, nodes, 0, 1);
    const Score score =
        cross_entropy({net.output(nodes - 1, 0), net.layout(nodes - 1, 0).floats}, labels, nullptr);
    sums[batch * 2] = score.loss;
    sums[batch * 2 + 1] = static_cast<double>(score.right);
  }
  group.all_reduce(sums);  // every element comes from one rank
  Score total;
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    total.loss += sums[i];
    total.right += static_cast<std::int64_t>(sums[i + 1]);
  }
  total.rows = samples * test.labels_per_sample;
  return total;
}

// What a run that resumes must have in common with the one before.
std::map<std::string, std::string> identity_of(const Task& task) {
  return {{"model", task.options.model},
          {"data", task.options.data},
          {"optimizer", task.options.optimizer},
          {"seed", std::to_string(task.options.seed)},
          {"shift", std::to_string(task.options.shift)},
          {"global batch", std::to_string(task.batch_size)},
          {"mode", task.options.reproducible ? "reproducible" : "fast"},
          {"shards", task.options.reproducible ? std::to_string(task.shards) : "one per rank"}};
}

// What may change from then on.
std::string rate_of(const Task& task) {
  return fmt::format("--lr {} --schedule {}", task.options.rate, task.options.schedule);
}

Snapshot snapshot_of(const Task& task, Strategy& strategy, const DistributedSampler& sampler,
                     std::uint64_t step) {
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.epoch = sampler.epoch();
  snapshot.cursor = static_cast<std::uint64_t>(sampler.cursor());
  snapshot.strings = identity_of(task);
  snapshot.strings["rate"] = rate_of(task);
  snapshot.parts = strategy.parts();
  return snapshot;
}

void check_identity(const Task& task, Snapshot& snapshot, const std::string& name) {
  for (const auto& [key, value] : identity_of(task))
    if (snapshot.strings[key] != value)
      throw_runtime("checkpoint {}/{} has {} {}, this run has {}", task.options.checkpoint, name,
                    key, snapshot.strings[key], value);
}

// Its name; empty: there is none. Where every rank holds everything rank 0 reads it for all, as it
// writes it for all: hosts need not share the folder.
std::string load_newest(const Task& task, Strategy& strategy, Snapshot& snapshot) {
  const auto read = [&](c10d::ProcessGroup& group) {
    const auto found = load(group, task.options.checkpoint, snapshot);
    if (found) check_identity(task, snapshot, found->name);
    return found ? found->name : std::string();
  };
  c10d::ProcessGroup& group = strategy.group();
  if (!strategy.holds_all()) return read(group);
  std::string name, problem;
  if (group.rank() == 0) try {
      auto single = alone();
      name = read(single);
    } catch (const std::exception& error) {
      problem = error.what();
    }
  throw_first(group, problem);
  name = gather_texts(group, name)[0];
  if (name.empty()) return name;
  std::uint64_t position[] = {snapshot.step, snapshot.epoch, snapshot.cursor};
  group.broadcast(position, 0);
  snapshot.step = position[0];
  snapshot.epoch = position[1];
  snapshot.cursor = position[2];
  for (const auto& part : snapshot.parts)
    group.broadcast(c10d::View(part.data.data(), part.data.size(), c10d::DType::u8), 0);
  return name;
}

// The steps that are done.
std::uint64_t resume(const Task& task, Strategy& strategy, DistributedSampler& sampler) {
  if (task.options.checkpoint.empty()) return 0;
  Snapshot snapshot;
  snapshot.parts = strategy.parts();
  const std::string name = load_newest(task, strategy, snapshot);
  if (name.empty()) return 0;
  strategy.loaded();
  sampler.set_epoch(snapshot.epoch);
  sampler.seek(static_cast<std::int64_t>(snapshot.cursor));
  if (sampler.cursor() == sampler.total()) sampler.set_epoch(snapshot.epoch + 1);
  if (strategy.group().rank() == 0) {
    fmt::print("resumes from {}/{} after step {}\n", task.options.checkpoint, name, snapshot.step);
    const std::string& before = snapshot.strings["rate"];
    if (before != rate_of(task)) fmt::print("with {}, not {}\n", rate_of(task), before);
  }
  return snapshot.step;
}

// Before the training, not after it.
void check_trace_file(const std::string& path, c10d::ProcessGroup& group) {
  if (path.empty()) return;
  std::string problem;
  if (group.rank() == 0 && !std::ofstream(path, std::ios::app))
    problem = fmt::format("--trace {}: cannot be written", path);
  throw_first(group, problem);
}

// Before the training too. Every rank that will write tries: their disks may differ.
void check_folder(const Task& task, Strategy& strategy) {
  const std::string& folder = task.options.checkpoint;
  if (folder.empty()) return;
  const int rank = strategy.group().rank();
  std::string problem;
  if (rank == 0 || !strategy.holds_all()) {
    std::error_code error;
    std::filesystem::create_directory(folder, error);
    const std::string probe = fmt::format("{}/probe-{}", folder, rank);
    if (!std::ofstream(probe))
      problem = fmt::format("--checkpoint {}: rank {} can make no file there: {}", folder, rank,
                            std::generic_category().message(errno));
    std::filesystem::remove(probe, error);
  }
  throw_first(strategy.group(), problem);
}

// Nothing can come of what follows, and a checkpoint of it would take the place of a good one.
void check_finite(const Task& task, c10d::ProcessGroup& group, double value,
                  const std::string& what) {
  if (!std::isfinite(value))
    give_up(group, fmt::format("{} is {}; try less than --lr {}", what, value, task.options.rate));
}

// All parameters, when they are fit to be kept. The loss of a step says nothing of the update that
// ends it, so a batch of tests does; and a layer may make something finite of what is not.
WholeValues collect_finite(const Task& task, Strategy& strategy, std::uint64_t step) {
  WholeValues all = strategy.collect();
  c10d::ProcessGroup& group = strategy.group();
  for (std::size_t i = 0; i < all.at.size(); ++i) {
    const std::span values(all.at[i], task.model.parameters[i].count());
    int ruined = 0;  // no way out of the loop, so that it goes by vectors
    for (const float value : values) ruined |= std::isfinite(value) ? 0 : 1;
    if (ruined == 0) continue;
    const auto finite = [](float value) { return std::isfinite(value); };
    check_finite(task, group, *std::find_if_not(values.begin(), values.end(), finite),
                 fmt::format("a value of {} after step {}", task.model.parameters[i].name, step));
  }
  const std::int64_t samples = std::min(kBatch, task.data.test.size);
  check_finite(task, group, evaluate(task, all, samples, group).loss,
               fmt::format("the test loss after step {}", step));
  return all;
}

using Seconds = std::chrono::duration<double>;

// Of an epoch's steps: the median time, and how long of the mean one nothing was computed.
std::string speed_of(double samples_per_second, std::vector<Seconds> steps, Seconds waited,
                     int ranks) {
  std::string text = fmt::format("{:.0f} samples/s", samples_per_second);
  if (steps.empty()) return text;
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  text += fmt::format("  median step {:.2f} ms", 1000 * middle->count());
  if (ranks > 1)
    text +=
        fmt::format(", waits {:.2f} ms", 1000 * waited.count() / static_cast<double>(steps.size()));
  return text;
}

// Collective. Of an epoch: the loss in training, and a test after it.
std::string results_of(const Task& task, Strategy& strategy, const Score& trained) {
  c10d::ProcessGroup& group = strategy.group();
  double sums[] = {trained.loss, static_cast<double>(trained.rows)};
  group.all_reduce(sums);
  const Score test = evaluate(task, strategy.collect(), task.data.test.size, group);
  const auto rows = static_cast<double>(test.rows);
  return fmt::format("loss {:.4f}  test loss {:.4f}  test accuracy {:.2f} %",
                     sums[0] / std::max(sums[1], 1.0), test.loss / rows,
                     100.0 * static_cast<double>(test.right) / rows);
}

void finish(const Task& task, Strategy& strategy, std::uint64_t step, Trace& trace) {
  const std::string digest = digest_of(task.model, collect_finite(task, strategy, step).at);
  check_same(strategy.group(), "weights after training", std::as_bytes(std::span(digest)));
  if (strategy.group().rank() == 0) fmt::print("weights {}\n", digest);
  if (!task.options.trace.empty()) trace.write(strategy.group(), task.options.trace);
}

}  // namespace

std::string digest_of(const Model& model, std::span<const float* const> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return model.parameters[a].name < model.parameters[b].name;
  });
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto eat = [&](const void* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  };
  for (const std::size_t i : order) {
    eat(model.parameters[i].name.c_str(), model.parameters[i].name.size() + 1);
    eat(values[i], model.parameters[i].bytes());
  }
  return fmt::format("{:016x}", hash);
}

void train(const Options& options, c10d::ProcessGroup& group, int workers, StrategyMaker* make) {
  Trace trace(!options.trace.empty());
  const Task task(options, workers);
  const std::unique_ptr<Strategy> made = make(task, group, trace);
  Strategy& strategy = *made;
  const bool prints = group.rank() == 0;
  check_task(group, task);
  check_trace_file(options.trace, group);
  check_folder(task, strategy);
  if (options.plan && prints) fmt::print("{}", memory_plan(task, group.size()));
  // Before anything is loaded: another job may be writing to the folder.
  std::optional<AsyncSaver> saver;
  if (!options.checkpoint.empty())
    saver.emplace(group, options.checkpoint, SaveOptions{.timeout = group.timeout()});
  DistributedSampler sampler({.samples = task.data.train.size, .seed = options.seed});
  std::uint64_t step = resume(task, strategy, sampler);
  // The step after a checkpoint computes while the copy is made.
  const auto copying = std::make_shared<std::optional<AsyncSaver::Copying>>();
  strategy.before_update([copying] { copying->reset(); });
  const std::uint64_t stop =
      options.steps > 0 ? static_cast<std::uint64_t>(options.steps) : task.steps();
  Progress progress(task, group.rank());
  while (step < stop && sampler.epoch() < static_cast<std::uint64_t>(options.epochs)) {
    Score score;
    progress.begin_epoch(step);
    std::vector<Seconds> times;
    Seconds waited{};
    while (step < stop && sampler.cursor() < sampler.total()) {
      const auto batch = sampler.next(task.batch_size);
      ++step;
      const Seconds waited_before = strategy.waited();
      const Clock::time_point began = Clock::now();
      const Score part =
          strategy.step(batch, step, rate_at(options.schedule, options.rate, step, task.steps()));
      times.push_back(Clock::now() - began);
      waited += strategy.waited() - waited_before;
      check_finite(task, group, part.loss,
                   fmt::format("the loss in step {} on rank {}", step, group.rank()));
      score = score + part;
      const auto rows = static_cast<double>(std::max<std::int64_t>(part.rows, 1));
      progress.step(sampler.epoch(), step, batch.size(), part.loss / rows);
      const bool due = options.save_every > 0
                           ? step % static_cast<std::uint64_t>(options.save_every) == 0
                           : sampler.cursor() == sampler.total();
      if (!saver || !(due || step == stop)) continue;
      collect_finite(task, strategy, step);
      copying->emplace(saver->save(snapshot_of(task, strategy, sampler, step)));
    }
    const std::string speed = speed_of(progress.rate(), times, waited, group.size());
    const std::string results = results_of(task, strategy, score);
    progress.clear();
    if (prints)
      fmt::print("epoch {}/{}  step {}  {}  {}\n", sampler.epoch() + 1, options.epochs, step,
                 results, speed);
    std::fflush(stdout);
    if (sampler.cursor() == sampler.total()) sampler.set_epoch(sampler.epoch() + 1);
  }
  if (saver) saver->wait();
  finish(task, strategy, step, trace);
}

}  // namespace nn
