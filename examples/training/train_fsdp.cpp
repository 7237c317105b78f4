// SPDX-License-Identifier: BSD-3-Clause
// Parameters, gradients and optimizer state sharded over the ranks; a unit of layers is gathered
// while it is computed.   c10d-run -n 2 train_fsdp --zero 3 --plan
#include "c10d/init.h"
#include "examples/training/trainer/trainer.h"

int main(int argc, char** argv) {
  const nn::Program program{"train_fsdp",
                            "Trains a model that is sharded over the ranks (ZeRO-1, 2 or 3).",
                            {"backend", "shards", "zero", "replicas"}};
  return nn::run_program(program, argc, argv, [](const nn::Options& options) {
    auto group = c10d::init_process_group({.backend = options.backend});
    nn::train(options, group, group.size(), nn::sharded);
  });
}
