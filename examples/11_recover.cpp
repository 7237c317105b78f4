// SPDX-License-Identifier: BSD-3-Clause
// The last rank dies, the others continue without it: docs/recovery.md.
// c10d-run -n 4 --max-failures 1 11_recover die
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include "c10d/env.h"
#include "c10d/init.h"
#include "c10d/values.h"

namespace {

constexpr int kSteps = 100;

struct State {
  double step = 0;
  double weight = 0;
};

// Nothing changes before its op has ended, so a step that failed can be run again.
void train(c10d::ProcessGroup& group, State& state) {
  state.weight += group.all_reduce(1.0, c10d::ReduceOp::avg);
  ++state.step;
}

}  // namespace

int main(int argc, char** argv) try {
  const auto launch = c10d::detect_launch();
  const bool one_dies = argc > 1 && std::string(argv[1]) == "die";
  int rank = launch.rank, size = launch.size;
  State state;
  c10d::ProcessGroup group;
  for (int attempt = 0;; ++attempt) try {
      // The old group is kept until the new one is there. It needs another name.
      group = c10d::init_process_group(
          {.rank = rank, .size = size, .name = "attempt-" + std::to_string(attempt)});
      // A rank may have ended the last step when another one saw it fail: all resume from rank 0's.
      state = broadcast(group, state, 0);
      while (state.step < kSteps) {
        if (one_dies && launch.rank == launch.size - 1 && state.step == 40) std::raise(SIGKILL);
        train(group, state);
      }
      break;
    } catch (const c10d::DistError& error) {
      // The first failure is the same on every rank, and so are the new ranks.
      const int lost = error.failure().rank;
      if (error.reason() != c10d::Reason::peer_lost || lost < 0) throw;
      std::printf("rank %d of %d continues without rank %d\n", rank, size, lost);
      rank -= rank > lost ? 1 : 0;
      --size;
    }
  std::printf("rank %d of %d: weight %g after %g steps\n", group.rank(), group.size(), state.weight,
              state.step);
  const int expected = launch.size - (one_dies ? 1 : 0);
  return state.weight == kSteps && group.size() == expected ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
