// SPDX-License-Identifier: BSD-3-Clause
// A program that starts its own ranks: no launcher on the command line.   07_spawn_ranks 4
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "c10d/init.h"
#include "c10d/launch.h"

int main(int argc, char** argv) {
  return c10d::run_main(argc, argv, [](int count, char** arguments) {
    const int ranks = count > 1 ? std::atoi(arguments[1]) : 2;
    return c10d::spawn(ranks, [](const c10d::ProcessGroup& group) {
      const int highest = group.all_reduce(group.rank(), c10d::ReduceOp::max);
      std::printf("the highest rank is %d\n", highest);
      if (highest != group.size() - 1) throw std::runtime_error("a wrong maximum");
    });
  });
}
