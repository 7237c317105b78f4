// SPDX-License-Identifier: BSD-3-Clause
// As train_ddp, from a program that starts its own ranks.   train_spawn --ranks 2 --epochs 3
#include "c10d/env.h"
#include "c10d/init.h"
#include "c10d/launch.h"
#include "examples/training/nn/errors.h"
#include "examples/training/trainer/trainer.h"

namespace {

void train_rank(const nn::Options& options, const c10d::LaunchInfo& launch) {
  if (launch.size != options.ranks)
    nn::throw_runtime(
        "--ranks {}, but {} started {}: train_spawn starts its own ranks; train_ddp is for a "
        "launcher",
        options.ranks, launch.launcher, launch.size);
  auto group = c10d::init_process_group({.backend = options.backend});
  nn::train(options, group, group.size(), nn::replicated);
}

// This program once more per rank; its children know that they are by their launcher.
void start_ranks(const nn::Options& options) {
  c10d::LaunchOptions launch{.ranks = options.ranks, .command = options.command};
  launch.command[0] = "/proc/self/exe";
  const c10d::LaunchResult result = c10d::launch(launch);
  if (result.forwarded_signal != 0)
    nn::throw_runtime("ended by signal {}", result.forwarded_signal);
  if (result.exit_code != 0)
    nn::throw_runtime("rank {} was the first to fail, with exit code {}:\n{}", result.first_failed,
                      result.exit_code,
                      result.ranks[static_cast<std::size_t>(result.first_failed)].last_lines);
}

}  // namespace

int main(int argc, char** argv) {
  const nn::Program program{"train_spawn",
                            "Starts --ranks processes and trains a replica of the model in each.",
                            {"backend", "shards", "ranks"}};
  return nn::run_program(program, argc, argv, [](const nn::Options& options) {
    const c10d::LaunchInfo launch = c10d::detect_launch();
    if (launch.launcher == "none")
      start_ranks(options);
    else
      train_rank(options, launch);
  });
}
