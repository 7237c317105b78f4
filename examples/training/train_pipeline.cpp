// SPDX-License-Identifier: BSD-3-Clause
// A stage of the model per rank; a batch passes through in --chunks micro-batches.
//   c10d-run -n 2 train_pipeline --chunks 8 --pipeline-schedule zb-h1
#include "c10d/init.h"
#include "examples/training/trainer/trainer.h"

int main(int argc, char** argv) {
  const nn::Program program{"train_pipeline",
                            "Trains a model whose layers lie on different ranks, as a pipeline of "
                            "micro-batches. --batch-size is that of the whole pipeline.",
                            {"backend", "pipeline"}};
  return nn::run_program(program, argc, argv, [](const nn::Options& options) {
    auto group = c10d::init_process_group({.backend = options.backend});
    nn::train(options, group, 1, nn::staged);
  });
}
