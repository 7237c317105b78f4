// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "bench/measure/block_runner.h"
#include "bench/measure/case_list.h"
#include "bench/measure/cpu_binding.h"
#include "bench/measure/machine.h"
#include "bench/measure/native_algorithms.h"
#include "bench/measure/shared_page.h"
#include "bench/measure/subject.h"
#include "bench/measure/watchdog.h"
#include "bench/model/bandwidth.h"
#include "bench/text/format.h"
#include "c10d/env.h"
#include "c10d/init.h"

namespace c10d::bench {
namespace {

// A column of this launch: the backend, and whether it can still be measured.
struct Entry {
  std::string name;
  std::unique_ptr<Contender> contender;  // null: not available here
  std::string code;                      // why not: unavailable, failed
  std::string reason;
  std::string algo;         // of the case in work, where the backend says so
  bool registered = false;  // the buffers are its own memory
};

class Rank {
 public:
  Rank(const Options& options, const Sink& sink);
  int run();

 private:
  struct Turn {  // one backend's part of a case
    Entry* entry;
    BlockRunner runner;
    bool control;  // the base once more, for A/A
    std::uint64_t iterations = 0;
    std::uint64_t hash = 0;
    std::uint64_t wrong = 0;  // of a check whose block is not out yet
  };
  void bind();
  void open(Entry& entry);
  Support support_of(const Case& c, const Entry& entry, const Buffers& buffers) const;
  void emit_environment();
  void make_buffers();
  void run_case(const Case& c, std::size_t index);
  std::vector<Turn> turns_of(const Case& c, std::size_t index, Buffers& buffers);
  void prepare(Turn& turn, const Case& c);
  void run_block(Turn& turn, const Case& c, int block, int order);
  bool drop_if_failed(Turn& turn, const Case& c);
  void check(Turn& turn, const Case& c, bool timed_before);
  void measure_memcpy(const Case& c);
  void expect(const Turn& turn, const Case& c, double seconds);
  void emit_skip(const Case& c, const Entry& entry);
  void emit(const Json& line) const {
    if (rank_ == 0) sink_(line);
  }
  void warn(const char* code, const std::string& text) const {
    emit(to_json(WarnRecord{code, text}));
  }

  const Options& options_;
  const Sink& sink_;
  Watchdog watchdog_;
  std::string token_;
  ProcessGroup control_;
  int rank_;
  int size_;
  SharedPage page_;
  std::size_t usable_ = 0;  // CPUs, before this rank was bound
  std::vector<Case> cases_;
  std::unique_ptr<Arena> input_;
  std::unique_ptr<Arena> output_;
  std::unique_ptr<Contender> memcpy_;
  std::vector<Entry> entries_;
  std::set<std::pair<std::uint64_t, bool>> copied_;  // sizes whose memcpy is known: hot or not
  int failures_ = 0;
  bool failed_ = false;
  bool wrong_ = false;
};

// The job's secret, by its path under the launcher's /proc/PID/fd.
std::string read_token(const Options& options) {
  if (options.token_path.empty()) return "";
  std::ifstream file(options.token_path, std::ios::binary);
  std::string token(std::istreambuf_iterator<char>(file), {});
  if (token.empty())
    throw InvalidArgument("--worker-token: nothing there; it is for ranks that c10d-bench starts");
  return token;
}

ProcessGroup meet_ranks(const Options& options, const std::string& token) {
  InitOptions init;
  init.backend = "native";
  init.name = "bench";
  init.token = token;
  init.timeout = duration_of(options.timeout);
  if (!env("C10D_TIMEOUT")) init.connect_timeout = std::chrono::seconds(60);
  ProcessGroup control = init_process_group(std::move(init));
  for (const Member& member : control.members()) {
    if (member.same_host) continue;
    throw_failure({Code::unsupported,
                   fmt::format("rank {} runs on {}: c10d-bench measures the ranks of one host",
                               member.rank, member.host),
                   member.rank, member.host});
  }
  return control;
}

Rank::Rank(const Options& options, const Sink& sink)
    : options_(options),
      sink_(sink),
      token_(read_token(options)),
      control_(meet_ranks(options, token_)),
      rank_(control_.rank()),
      size_(control_.size()),
      // Longer than an op's own deadline, so that a stuck backend is named before the barrier gives
      // up.
      page_(control_.store(), rank_, size_, duration_of(options.timeout * 2 + 10)),
      cases_(cases_of(options, size_)),
      memcpy_(make_memcpy_contender(rank_)) {
  for (const std::string& name : options.backends)
    if (options.solo.empty() || options.solo == name)
      entries_.push_back({name, nullptr, "", "", "", false});
}

// Before the backends, so that their threads are where the rank is. What a launcher bound stays
// where it is.
void Rank::bind() {
  const std::vector<Cpu> cpus = usable_cpus();
  std::vector<int> all;
  for (const Cpu& cpu : cpus) all.push_back(cpu.number);
  usable_ = all.size();
  std::string text = cpus_text(all);
  const auto hash = static_cast<std::int64_t>(hash_bytes(text.data(), text.size()) >> 1);
  const std::int64_t root = page_.from_root(hash);
  const bool alike = page_.sum(root == hash ? 0 : 1) == 0;
  const std::vector<int> share =
      alike ? cpus_of_rank(cpus, rank_, size_, options_.bind) : std::vector<int>();
  if (!share.empty() && page_.bind(share)) text = cpus_text(share);
  control_.store().set(fmt::format("cpus/{}", rank_), text);
  if (options_.worker_launch > 0 || !options_.solo.empty()) return;  // said once
  if (page_.oversubscribed())
    warn("W001", fmt::format("{} ranks on {} CPUs: times include waiting for a CPU, and are those "
                             "of bursts, up to {} ops between two meetings",
                             size_, page_.cpu_count(), burst_of(Case{})));
  const bool asked = options_.bind == Bind::set || options_.bind == Bind::core;
  if (asked && !alike)
    warn("W008", "--bind: the launcher has bound the ranks already; they stay where they are");
  if (options_.bind == Bind::set && alike && share.empty())
    warn("W008", fmt::format("--bind set: {} CPUs are fewer than two for each of {} ranks, which "
                             "share them all",
                             all.size(), size_));
  if (options_.bind == Bind::core)
    warn("W008",
         "--bind core: progress threads of a backend, as gloo's, share the one CPU of "
         "their rank");
}

void Rank::open(Entry& entry) {
  std::string reason;
  try {
    ContenderContext context{&control_, duration_of(options_.timeout), token_};
    context.algorithm = options_.algo;
    context.groups = options_.sweep.concurrent;
    entry.contender = make_contender(entry.name, context);
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (page_.sum(reason.empty() ? 0 : 1) == 0) return;
  entry.contender.reset();
  entry.code = "unavailable";
  entry.reason = reason.empty() ? "not available on another rank" : reason;
}

int Rank::run() {
  watchdog_.expect("making groups", options_.timeout * 3 + 60);
  bind();
  for (Entry& entry : entries_) open(entry);
  if (options_.worker_launch <= 0 && options_.solo.empty()) emit_environment();
  make_buffers();
  for (std::size_t index = 0; index < cases_.size(); ++index)
    if (options_.solo.empty() || is_control_case(index)) run_case(cases_[index], index);
  for (Entry& entry : entries_)
    if (entry.contender && entry.code.empty()) entry.contender->shutdown();
  page_.barrier();
  emit(Json{{"t", kLaunchDone}});
  control_.shutdown();
  return wrong_ ? 3 : failed_ ? 1 : 0;
}

// Registered with the first backend that has such memory; the others use it as any other.
void Rank::make_buffers() {
  Footprint bytes;
  for (const Case& c : cases_) {
    const Footprint one = memory_of(c, size_, options_.window);
    bytes = {std::max(bytes.input, one.input), std::max(bytes.output, one.output)};
  }
  for (Entry& entry : entries_) {
    if (!options_.heap || !entry.contender || !entry.code.empty() || input_) continue;
    if (entry.name.find(':') != std::string::npos || entry.name == "memcpy") continue;
    input_ = entry.contender->arena(bytes.input);
    output_ = entry.contender->arena(bytes.output);
    entry.registered = true;
  }
  if (input_) return;
  input_ = std::make_unique<Arena>(bytes.input);
  output_ = std::make_unique<Arena>(bytes.output);
}

void Rank::emit_environment() {
  page_.barrier();
  if (rank_ != 0) return;
  std::map<std::string, std::string> about;
  for (const Entry& entry : entries_)
    if (entry.contender) about[entry.name] = entry.contender->description();
  Json line = environment_json(about);
  line["cores"] = usable_;
  line["cpus"] = Json::array();
  for (int rank = 0; rank < size_; ++rank)
    line["cpus"].push_back(control_.store().get(fmt::format("cpus/{}", rank)));
  emit(line);
}

void Rank::emit_skip(const Case& c, const Entry& entry) {
  emit(to_json(SkipRecord{key_of(c), entry.name, entry.code, entry.reason}));
}

Support Rank::support_of(const Case& c, const Entry& entry, const Buffers& buffers) const {
  const Contender& contender = *entry.contender;
  if (options_.cuda && (!contender.computes() || entry.name.starts_with("raw:")))
    return {false, "measures memory of the host only", ""};
  const OpKind kind = facts_of(c.op).kind;
  const DeviceType device = options_.cuda ? DeviceType::cuda : DeviceType::cpu;
  Support support = contender.supports({kind, c.dtype, c.redop, device});
  if (!support) return support;
  if (options_.cuda)
    return {false, "this build has no CUDA: c10d-bench has no buffers on a GPU", ""};
  if (buffers.flight() == Flight::together && !contender.overlaps())
    return {false, "called directly, one message at a time", ""};
  if (buffers.flight() == Flight::one_per_group && !contender.overlaps())
    return {false, "called directly, one op at a time", ""};
  const std::string algorithm = contender.algorithm(c, entry.registered);
  if (entry.name == "native" && !options_.algo.empty() &&
      !is_as_asked(facts_of(c.op).name, algorithm, options_.algo))
    return {false,
            fmt::format("--algo {}: not for {} in such memory", options_.algo, facts_of(c.op).name),
            ""};
  if (!algorithm.empty()) support.composed = algorithm;
  return support;
}

// Every rank decides alike: `supports` is pure data, and failures were agreed on.
std::vector<Rank::Turn> Rank::turns_of(const Case& c, std::size_t index, Buffers& buffers) {
  // With a fixed number of iterations, or a start skew in each, an iteration is one op: no bursts.
  const bool by_time = options_.iters == 0 && options_.warmup < 0 && options_.start_skew <= 0;
  const double block_seconds = options_.seconds / options_.blocks;
  const BlockRunner::Settings settings{options_.dirty,
                                       options_.sync,
                                       static_cast<std::int64_t>(options_.start_skew * 1e9),
                                       options_.seed,
                                       by_time ? 0.1 * block_seconds : 0,
                                       options_.iters > 0 ? 3600 : 0.25 * block_seconds};
  std::vector<Turn> turns;
  for (Entry& entry : entries_) {
    if (!entry.contender || !entry.code.empty()) {
      emit_skip(c, entry);
      continue;
    }
    const Support support = support_of(c, entry, buffers);
    if (!support) {
      emit(to_json(SkipRecord{key_of(c), entry.name, "unsupported", support.reason}));
      continue;
    }
    entry.algo = support.composed;
    turns.push_back({&entry, BlockRunner(page_, *entry.contender, buffers, settings), false});
  }
  const bool control = options_.control != Control::off && options_.solo.empty() &&
                       options_.command == Command::compare && is_control_case(index);
  if (control && !turns.empty() && turns.front().entry == &entries_.front())
    turns.push_back({&entries_.front(),
                     BlockRunner(page_, *entries_.front().contender, buffers, settings), true});
  return turns;
}

void Rank::run_case(const Case& c, std::size_t index) {
  Buffers buffers(c, rank_, size_, options_.window, options_.seed, *input_, *output_);
  if (copied_.insert({c.bytes, c.cache == Cache::hot}).second && c.bytes > 0) measure_memcpy(c);
  std::vector<Turn> turns = turns_of(c, index, buffers);
  for (Turn& turn : turns) prepare(turn, c);
  const int launch = std::max(0, options_.worker_launch);
  for (int block = 0; block < options_.blocks; ++block) {
    const auto order =
        block_order(turns.size(), options_.random_order, options_.seed, launch, index, block);
    for (std::size_t place = 0; place < order.size(); ++place) {
      Turn& turn = turns[order[place]];
      if (turn.entry->code.empty()) run_block(turn, c, block, static_cast<int>(place));
    }
  }
}

// Longer than an op's own deadline and than the barrier's patience, so that a failure that can be
// named is.
void Rank::expect(const Turn& turn, const Case& c, double seconds) {
  watchdog_.expect(
      fmt::format("{} {} {}", turn.entry->name, facts_of(c.op).name, bytes_text(c.bytes)),
      seconds + options_.timeout * 3 + 20);
}

// Checks, warms up, and agrees on the number of iterations.
void Rank::prepare(Turn& turn, const Case& c) {
  if (!turn.entry->code.empty()) return;
  expect(turn, c, options_.warmup >= 0 ? 3600 : options_.seconds);
  turn.entry->contender->prepare(c);
  if (!turn.control && options_.check != Check::off) check(turn, c, false);
  const double block_seconds = options_.seconds / options_.blocks;
  const double each = turn.runner.warm_up(std::min(block_seconds / 4, 0.02), options_.warmup);
  if (drop_if_failed(turn, c)) return;
  std::uint64_t iterations = options_.iters;
  if (iterations == 0)
    iterations =
        static_cast<std::uint64_t>(std::clamp(block_seconds / std::max(each, 1e-9), 3.0,
                                              static_cast<double>(SharedPage::kMaxIterations)));
  turn.iterations =
      static_cast<std::uint64_t>(page_.from_root(static_cast<std::int64_t>(iterations)));
}

void Rank::check(Turn& turn, const Case& c, bool timed_before) {
  const BlockRunner::CheckResult result = turn.runner.check(timed_before);
  turn.wrong += result.wrong;
  turn.hash = result.hash;
  wrong_ = wrong_ || result.wrong > 0 || !result.ranks_agree;
  if (!result.ranks_agree)
    warn("W003", fmt::format("{} {} {}: results differ between ranks", turn.entry->name,
                             facts_of(c.op).name, c.bytes));
}

bool Rank::drop_if_failed(Turn& turn, const Case& c) {
  if (!turn.runner.failed_anywhere()) return false;
  const std::string key = fmt::format("failure/{}", failures_++);
  Store& store = control_.store();
  if (!turn.runner.failure().empty())
    store.append(key, fmt::format("[rank {}: {}] ", rank_, turn.runner.failure()));
  page_.barrier();
  turn.entry->code = "failed";
  turn.entry->reason = store.try_get(key).value_or("");
  failed_ = true;
  emit_skip(c, *turn.entry);
  warn("W004", fmt::format("{} failed in {}: {}", turn.entry->name, facts_of(c.op).name,
                           turn.entry->reason));
  return true;
}

void Rank::run_block(Turn& turn, const Case& c, int block, int order) {
  expect(turn, c, options_.iters > 0 ? 3600 : 2 * options_.seconds);
  CellRecord cell = turn.runner.measure(
      turn.iterations, options_.iters > 0 ? 3600 : 2 * options_.seconds / options_.blocks);
  if (drop_if_failed(turn, c)) return;
  const bool last = block + 1 == options_.blocks;
  if (!turn.control && options_.check != Check::off && (last || options_.check == Check::all))
    check(turn, c, true);
  if (drop_if_failed(turn, c)) return;
  if (rank_ != 0) return;
  cell.key = key_of(c);
  cell.backend = turn.entry->name + (turn.control            ? kControlSuffix
                                     : options_.solo.empty() ? ""
                                                             : kSoloSuffix);
  cell.algo = turn.entry->algo;
  cell.elems = c.op == BenchOp::barrier ? 0 : c.bytes / size_of(c.dtype);
  cell.window = c.op == BenchOp::isend ? window_of(c, options_.window) : 1;
  cell.launch = std::max(0, options_.worker_launch);
  cell.block = block;
  cell.order = order;
  cell.wrong = std::exchange(turn.wrong, 0);
  if (options_.check != Check::off && turn.entry->contender->computes() && !turn.control)
    cell.hash = fmt::format("{:08x}", static_cast<std::uint32_t>(turn.hash ^ turn.hash >> 32));
  put_bandwidth(c, size_, cell);
  emit(to_json(cell, true));
}

// One core copying S bytes, in the same process and minute as everything else: the measure of
// %ceil.
void Rank::measure_memcpy(const Case& c) {
  Case one = c;
  one.concurrent = 1;
  memcpy_->prepare(one);
  page_.barrier();
  if (rank_ == 0) {
    std::vector<double> samples;
    const std::int64_t until = SharedPage::now() + 5'000'000;
    memcpy_->run({}, Flight::in_turn);
    while (samples.size() < 5 || (SharedPage::now() < until && samples.size() < 2000)) {
      const std::int64_t start = SharedPage::now();
      memcpy_->run({}, Flight::in_turn);
      samples.push_back(static_cast<double>(SharedPage::now() - start) * 1e-3);
    }
    const double us = median(std::move(samples));
    emit(to_json(CeilRecord{"memcpy", "", c.bytes, std::max(0, options_.worker_launch),
                            static_cast<double>(c.bytes) * 1e-3 / us, us, c.cache == Cache::hot}));
  }
  page_.barrier();
}

}  // namespace

int run_rank(const Options& options, const Sink& sink) {
  try {
    return Rank(options, sink).run();
  } catch (const InvalidArgument& error) {
    fmt::print(stderr, "c10d-bench: {}\n", error.what());
    return 2;
  } catch (const DistTimeoutError& error) {
    fmt::print(stderr, "c10d-bench: {}\n", error.what());
    return 124;
  } catch (const std::exception& error) {
    fmt::print(stderr, "c10d-bench: {}\n", error.what());
    return 1;
  }
}

}  // namespace c10d::bench
