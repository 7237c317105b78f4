// SPDX-License-Identifier: BSD-3-Clause
// Two ways to a smaller group: split() is called by all ranks, new_group() by its members only.
#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>

#include "c10d/init.h"
#include "c10d/values.h"

int main() try {
  auto world = c10d::init_process_group();

  auto parity = world.split(world.rank() % 2);  // one group of even, one of odd ranks
  const int ranks_like_me = parity.all_reduce(1);
  const int expected = (world.size() + 1 - world.rank() % 2) / 2;
  std::printf("rank %d is rank %d of %d in %s\n", world.rank(), parity.rank(), parity.size(),
              parity.id().c_str());
  if (ranks_like_me != expected) return 1;

  std::vector<int> first_half(static_cast<std::size_t>(world.size() + 1) / 2);
  std::iota(first_half.begin(), first_half.end(), 0);
  if (world.rank() < static_cast<int>(first_half.size())) {
    auto half = world.new_group(first_half);
    const double value = broadcast(half, world.rank() == 0 ? 2.5 : 0, 0);
    if (value != 2.5) return 1;
  }
  world.barrier();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
