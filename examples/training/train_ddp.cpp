// SPDX-License-Identifier: BSD-3-Clause
// A replica of the model per process; gradients are averaged while backward runs. Rank and size
// come from whatever started it: c10d-run, torchrun, mpirun, srun.
//   c10d-run --nproc_per_node=4 train_ddp --epochs 3 --batch-size 128 --lr 0.001
#include "c10d/init.h"
#include "examples/training/trainer/trainer.h"

int main(int argc, char** argv) {
  const nn::Program program{"train_ddp",
                            "Trains a replica of the model on every rank. Start it with c10d-run, "
                            "torchrun, mpirun or srun.",
                            {"backend", "shards"}};
  return nn::run_program(program, argc, argv, [](const nn::Options& options) {
    auto group = c10d::init_process_group({.backend = options.backend});
    nn::train(options, group, group.size(), nn::replicated);
  });
}
