// SPDX-License-Identifier: BSD-3-Clause
// A halo exchange: both neighbours at once. Ops in one batch start together, so no order can
// deadlock, and complete as one Work.
#include <cstdio>
#include <exception>
#include <vector>

#include "c10d/init.h"

int main() try {
  auto group = c10d::init_process_group();
  const int left = group.rank() - 1;
  const int right = group.rank() + 1;
  constexpr std::size_t kCells = 256;
  std::vector<float> strip(kCells, static_cast<float>(group.rank()));
  std::vector<float> from_left(kCells, -1);
  std::vector<float> from_right(kCells, -1);

  auto batch = group.batch();
  if (left >= 0) {
    batch.add(c10d::Send{.input = strip, .peer = left, .tag = 0});
    batch.add(c10d::Recv{.output = from_left, .peer = left, .tag = 1});
  }
  if (right < group.size()) {
    batch.add(c10d::Send{.input = strip, .peer = right, .tag = 1});
    batch.add(c10d::Recv{.output = from_right, .peer = right, .tag = 0});
  }
  batch.submit();

  std::printf("rank %d has %g on its left and %g on its right\n", group.rank(), from_left[0],
              from_right[0]);
  const bool left_ok = from_left.back() == static_cast<float>(left);
  const bool right_ok =
      from_right.back() == (right < group.size() ? static_cast<float>(right) : -1.0F);
  return left_ok && right_ok ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
