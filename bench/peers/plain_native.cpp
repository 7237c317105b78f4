// SPDX-License-Identifier: BSD-3-Clause
// A plain loop around all_reduce of the public API; any launcher starts its ranks.
#include <exception>
#include <span>

#include "bench/peers/plain_loop.h"
#include "c10d/init.h"

int main(int argc, char** argv) {
  try {
    c10d::ProcessGroup group = c10d::init_process_group({.backend = "native"});
    plain::loop_over_sizes(
        argc, argv, group.rank(),
        [&](const float* input, float* output, std::size_t count) {
          group.all_reduce(std::span(output, count), std::span(input, count));
        },
        [&](double* values, std::size_t count) {
          group.all_reduce(std::span(values, count), c10d::ReduceOp::max);
        },
        [&] { group.barrier(); });
    group.shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plain_native: %s\n", error.what());
    return 1;
  }
}
