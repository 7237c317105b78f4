// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/train.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <regex>
#include <vector>

#include "bench/model/exit_code.h"
#include "bench/model/stats.h"
#include "bench/text/format.h"
#include "c10d/error.h"
#include "c10d/launch.h"

namespace c10d::bench {
namespace {

constexpr std::chrono::minutes kLaunchTimeout{30};  // hung, not slow

// One row of the table: the same model, batch and steps in one way of training.
struct Contestant {
  int ranks = 1;
  std::vector<std::string> command;
  std::string what;           // as the program calls itself
  std::vector<double> steps;  // milliseconds: the median, by launch
  std::vector<double> waits;
  std::string problem;  // why it cannot run here
};

std::vector<Contestant> contestants(const TrainOptions& options) {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string model = options.model, batch = std::to_string(options.batch_size),
                    steps = std::to_string(options.steps);
  std::vector<Contestant> all;
  const auto torch = [&](const std::string& python, int ranks, const char* backend) {
    all.push_back(
        {.ranks = ranks,
         .command = {python, here / "torch_ddp.py", "--model", model, "--batch-size", batch,
                     "--steps", steps, "--backend", backend},
         .what = fmt::format("{}{}{}", python, ranks == 1 ? "" : " on ", ranks == 1 ? "" : backend),
         .steps = {},
         .waits = {},
         .problem = {}});
  };
  const auto ours = [&](const char* program, const char* mode, int ranks) {
    all.push_back(
        {.ranks = ranks,
         .command = {here / program, "--model", model, "--data", "random", "--batch-size", batch,
                     "--steps", steps, "--optimizer", "sgd", "--epochs", steps, "--mode", mode},
         .what = fmt::format("c10d {}", mode),
         .steps = {},
         .waits = {},
         .problem = {}});
  };
  for (const int ranks : {1, options.ranks}) {
    for (const std::string& python : options.pythons) {
      torch(python, ranks, "gloo");
      if (ranks > 1) torch(python, ranks, "c10d");
    }
    const char* const program = ranks == 1 ? "train_single" : "train_ddp";
    ours(program, "fast", ranks);
    ours(program, "reproducible", ranks);
  }
  return all;
}

// Nonzero: the signal that ended the run from outside.
int run_once(Contestant& contestant) try {
  std::optional<StepTimes> times;
  std::string complaint;
  const auto on_line = [&](int rank, bool is_stderr, std::string_view line) {
    if (is_stderr) complaint = line;
    const auto found = parse_step_times(std::string(line));
    if (is_stderr || rank != 0 || !found) return;
    times = found;
    if (line.starts_with("PyTorch")) contestant.what = line.substr(0, line.find(':'));
  };
  LaunchOptions options;
  options.ranks = contestant.ranks;
  options.command = contestant.command;
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  options.timeout = kLaunchTimeout;
  options.on_line = on_line;
  const LaunchResult launched = launch(options);
  if (launched.forwarded_signal != 0) return launched.forwarded_signal;
  if (launched.exit_code != 0 || !times) {
    contestant.problem = launched.timed_out
                             ? fmt::format("not done after {}", kLaunchTimeout)
                             : fmt::format("exit code {}: {}", launched.exit_code, complaint);
    return 0;
  }
  contestant.steps.push_back(times->median_ms);
  if (times->waits_ms) contestant.waits.push_back(*times->waits_ms);
  return 0;
} catch (const std::exception& error) {
  contestant.problem = error.what();
  return 0;
}

// Launch i of one against launch i of the other: they ran one after the other.
Estimate ratio(const Contestant& contestant, const Contestant& base, std::uint64_t seed) {
  std::vector<std::vector<double>> ratios;
  for (std::size_t i = 0; i < std::min(contestant.steps.size(), base.steps.size()); ++i)
    ratios.push_back({contestant.steps[i] / base.steps[i]});
  return bootstrap(ratios, seed);
}

void print_row(const Contestant& contestant, const Contestant& base, const TrainOptions& options,
               int width) {
  if (!contestant.problem.empty()) {
    std::printf("%-*s %5d  skipped: %s\n", width, contestant.what.c_str(), contestant.ranks,
                contestant.problem.c_str());
    return;
  }
  const double ms = median(contestant.steps);
  std::string against = "-";
  if (&contestant != &base && base.problem.empty()) {
    const Estimate estimate = ratio(contestant, base, options.seed);
    against = ratio_text(estimate.value);
    if (estimate.ci95)
      against +=
          fmt::format(" [{}, {}]", ratio_text(estimate.ci95->low), ratio_text(estimate.ci95->high));
  }
  const std::string waits =
      contestant.waits.empty() ? "-" : fmt::format("{:.2f}", median(contestant.waits));
  std::printf("%-*s %5d %12.2f %10.0f %12s  %s\n", width, contestant.what.c_str(), contestant.ranks,
              ms, options.batch_size * contestant.ranks * 1e3 / ms, waits.c_str(), against.c_str());
}

}  // namespace

std::optional<StepTimes> parse_step_times(const std::string& line) {
  static const std::regex pattern(R"(median step (\d+\.\d+) ms(?:, waits (\d+\.\d+) ms)?)");
  std::smatch found;
  if (!std::regex_search(line, found, pattern)) return {};
  StepTimes times{.median_ms = std::stod(found[1])};
  if (found[2].matched) times.waits_ms = std::stod(found[2]);
  return times;
}

int compare_training(const TrainOptions& options) {
  std::vector<Contestant> all = contestants(options);
  std::mt19937_64 random(options.seed);
  for (int number = 0; number < options.launches; ++number) {
    std::vector<std::size_t> order(all.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      const int signal = all[i].problem.empty() ? run_once(all[i]) : 0;
      if (signal != 0) return 128 + signal;
    }
  }
  std::size_t longest = 0;
  for (const Contestant& contestant : all) longest = std::max(longest, contestant.what.size());
  const auto width = static_cast<int>(longest);
  std::printf(
      "%s, %d samples a rank and step, one thread a rank; %d launch%s of %d steps, "
      "interleaved\n\n%-*s %5s %12s %10s %12s  %s\n",
      options.model.c_str(), options.batch_size, options.launches,
      options.launches == 1 ? "" : "es", options.steps, width, "what", "ranks", "step p50 ms",
      "samples/s", "waits ms", "time / first [95 % CI]");
  const Contestant* base = &all.front();
  for (const Contestant& contestant : all) {
    if (contestant.ranks != base->ranks) base = &contestant;
    print_row(contestant, *base, options, width);
  }
  const bool measured = std::any_of(all.begin(), all.end(),
                                    [](const Contestant& one) { return one.problem.empty(); });
  if (!measured)
    std::printf(
        "\nThe trainers are looked for beside c10d-bench, where a build with oneDNN puts "
        "them: build/release/bin/c10d-bench train\n");
  return measured ? 0 : kNothingRan;
}

}  // namespace c10d::bench
