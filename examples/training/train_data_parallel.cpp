// SPDX-License-Identifier: BSD-3-Clause
// One process, a replica of the model per thread: the smallest step up from train_single.
//   train_data_parallel --ranks 2 --epochs 3
#include "examples/training/trainer/trainer.h"

int main(int argc, char** argv) {
  const nn::Program program{"train_data_parallel",
                            "Trains replicas of a model, each in a thread, on parts of a batch.",
                            {"shards", "ranks"}};
  return nn::run_program(program, argc, argv, [](const nn::Options& options) {
    auto group = nn::alone();
    nn::train(options, group, options.ranks, nn::replicas);
  });
}
