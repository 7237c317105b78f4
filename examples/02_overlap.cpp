// SPDX-License-Identifier: BSD-3-Clause
// An async op runs while this thread computes. Its buffer belongs to the op until wait() returns.
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include "c10d/init.h"

int main() try {
  auto group = c10d::init_process_group();
  std::vector<double> gradient(1 << 18, group.rank() + 1.0);
  auto work = group.async().all_reduce(gradient);

  double next_layer = 0;
  for (int i = 1; i <= 1'000'000; ++i) next_layer += std::sqrt(i);
  const bool was_done = work.done();
  work.wait();  // throws what the op failed with

  const double expected = group.size() * (group.size() + 1) / 2.0;
  std::printf("rank %d: computed %.0f, the op was %s by then, every sum is %g\n", group.rank(),
              next_layer, was_done ? "done" : "still running", gradient.back());
  return gradient.front() == expected && gradient.back() == expected ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
