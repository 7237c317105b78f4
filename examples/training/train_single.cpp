// SPDX-License-Identifier: BSD-3-Clause
// One process: what the other training programs are measured against.   train_single --epochs 3
#include "examples/training/trainer/trainer.h"

int main(int argc, char** argv) {
  const nn::Program program{"train_single", "Trains a model in this process.", {"shards"}};
  return nn::run_program(program, argc, argv, [](const nn::Options& options) {
    auto group = nn::alone();
    nn::train(options, group, 1, nn::local);
  });
}
