// SPDX-License-Identifier: BSD-3-Clause
// Every rank brings numbers, every rank leaves with their sums.   c10d-run -n 4 01_hello_all_reduce
#include <cstdio>
#include <exception>
#include <vector>

#include "c10d/init.h"

int main() try {
  auto group = c10d::init_process_group();
  std::vector<float> values(1000, static_cast<float>(group.rank() + 1));
  group.all_reduce(values);
  std::printf("rank %d of %d on %s: the sum is %g\n", group.rank(), group.size(),
              group.backend().c_str(), values[0]);
  const int expected = group.size() * (group.size() + 1) / 2;
  return values[0] == static_cast<float>(expected) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
