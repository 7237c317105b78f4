// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/overlap.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <thread>
#include <utility>
#include <vector>

#include "bench/model/stats.h"
#include "c10d/env.h"
#include "c10d/init.h"
#include "c10d/launch.h"

namespace c10d::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kElements = std::size_t{4} << 20;  // 16 MiB of f32
constexpr std::chrono::milliseconds kComputation{40};
constexpr int kRounds = 15;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Work for the CPU that touches no memory; takes long enough to be timed.
std::uint64_t turn(std::uint64_t turns, std::uint64_t value) {
  for (std::uint64_t i = 0; i < turns; ++i) value = value * 6364136223846793005u + (i ^ value >> 7);
  return value;
}

class Overlap {
 public:
  explicit Overlap(ProcessGroup& group) : group_(group), buffer_(kElements, 1.0F) {}

  void run() {
    const double op = median_of([&] { group_.all_reduce(buffer_); });
    const double asleep = median_of([&] { std::this_thread::sleep_for(kComputation); });
    const double beside_sleep = median_of([&] {
      const Work work = start();
      std::this_thread::sleep_for(kComputation);
      work.wait();
    });
    calibrate();
    // In turns: what else runs on the machine meets both alike.
    std::vector<double> after, beside;
    for (int i = 0; i < kRounds; ++i) {
      after.push_back(time([&] {
        group_.all_reduce(buffer_);
        compute();
      }));
      beside.push_back(time([&] {
        const Work work = start();
        compute();
        work.wait();
      }));
    }
    if (group_.rank() != 0) return;
    const double hidden = 1 - (beside_sleep - asleep) / op;
    const double one_by_one = median(after), together = median(beside);
    fmt::print(
        "all_reduce f32, 16 MiB, {} ranks, {}: {:.2f} ms\n"
        "  beside {} ms of sleep  {:5.1f} ms  {:.0f} % hidden\n"
        "  beside {} ms of work   {:5.1f} ms  {:.2f} x one after the other ({:.1f} ms)\n",
        group_.size(), group_.backend(), op * 1e3, kComputation.count(), beside_sleep * 1e3,
        hidden * 100, kComputation.count(), together * 1e3, together / one_by_one,
        one_by_one * 1e3);
  }

 private:
  Work start() { return group_.async().all_reduce(buffer_, ReduceOp::avg); }
  void compute() { sink_ = turn(turns_, sink_); }
  // By the time that this thread runs, not by the clock: others may run meanwhile.
  void calibrate() {
    constexpr std::uint64_t kStep = 100'000;
    const double end = cpu_seconds() + std::chrono::duration<double>(kComputation).count();
    for (turns_ = 0; cpu_seconds() < end; turns_ += kStep) sink_ = turn(kStep, sink_);
  }
  template <class Body>
  double time(Body body) {
    group_.barrier();
    const auto start = Clock::now();
    body();
    return seconds_since(start);
  }
  template <class Body>
  double median_of(Body body) {
    std::vector<double> times;
    for (int i = 0; i < kRounds; ++i) times.push_back(time(body));
    return median(std::move(times));
  }

  ProcessGroup& group_;
  std::vector<float> buffer_;
  std::uint64_t turns_ = 0;
  volatile std::uint64_t sink_ = 1;  // else the compiler leaves the work out
};

}  // namespace

int run_overlap(const std::vector<std::string>& argv) {
  if (!env("C10D_WORLD_SIZE"))
    return launch({.ranks = 2, .command = argv, .prefix_output = false}).exit_code;
  ProcessGroup group = init_process_group({});
  Overlap(group).run();
  group.barrier();
  return 0;
}

}  // namespace c10d::bench
