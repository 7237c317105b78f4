// SPDX-License-Identifier: BSD-3-Clause
// A program that starts its own ranks: no launcher on the command line.   07_spawn_ranks 4
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "c10d/init.h"
#include "c10d/launch.h"

int run_rank() {
  auto group = c10d::init_process_group();
  const int highest = group.all_reduce(group.rank(), c10d::ReduceOp::max);
  std::printf("the highest rank is %d\n", highest);
  return highest == group.size() - 1 ? 0 : 1;
}

int main(int argc, char** argv) try {
  if (argc > 1 && std::string_view(argv[1]) == "--rank") return run_rank();
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto result = c10d::launch({.ranks = ranks, .command = {"/proc/self/exe", "--rank"}});
  if (result.exit_code != 0)
    std::fprintf(stderr, "rank %d was the first to fail, with %d\n", result.first_failed,
                 result.exit_code);
  return result.exit_code;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
