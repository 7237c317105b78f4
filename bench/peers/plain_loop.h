// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// What somebody would write to time a collective: a loop around it. The programs that use it,
// `PROGRAM [--barrier] SECONDS BYTES...`, have nothing of the benchmark in them, so that they can
// tell whether the benchmark is right: c10d-bench doctor --cross-check. With --barrier each op
// follows a barrier of the library, which is not timed, as in the benchmarks of OSU and Intel.
namespace plain {

using Clock = std::chrono::steady_clock;

inline double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

template <class Op, class Before>
std::vector<double> time_each(std::size_t count, Op&& op, Before&& before) {
  std::vector<double> times(count);
  for (double& time : times) {
    before();
    const Clock::time_point start = Clock::now();
    op();
    time = microseconds(Clock::now() - start);
  }
  return times;
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// `all_reduce(input, output, count)` adds up floats over the ranks; `largest(values, count)` leaves
// on every rank the largest of all ranks. Rank 0 prints bytes and microseconds, a line per size:
// the median of the slowest rank of each call.
template <class AllReduce, class Largest, class Barrier>
void loop_over_sizes(int argc, char** argv, int rank, AllReduce&& all_reduce, Largest&& largest,
                     Barrier&& barrier) {
  const bool has_barriers = argc > 1 && std::strcmp(argv[1], "--barrier") == 0;
  const auto before = [&] {
    if (has_barriers) barrier();
  };
  const int first = has_barriers ? 2 : 1;
  const double seconds = argc > first ? std::atof(argv[first]) : 0.3;
  for (int i = first + 1; i < argc; ++i) {
    const std::size_t floats = std::strtoull(argv[i], nullptr, 10) / sizeof(float);
    const std::vector<float> input(floats, 1.0f);
    std::vector<float> output(floats);
    const auto op = [&] { all_reduce(input.data(), output.data(), floats); };
    op();
    double each = median(time_each(5, op, before));
    largest(&each, 1);
    const auto count = static_cast<std::size_t>(std::clamp(seconds * 1e6 / each, 20.0, 20000.0));
    time_each(count / 10, op, before);
    std::vector<double> times = time_each(count, op, before);
    largest(times.data(), count);
    if (rank == 0) std::printf("%zu %.3f\n", floats * sizeof(float), median(times));
    std::fflush(stdout);
  }
}

}  // namespace plain
