// SPDX-License-Identifier: BSD-3-Clause
// As train_ddp, on several hosts: c10d-run is typed on each of them, and this prints what to type.
//   train_multinode --print-commands node1:4,node2:4 --epochs 3
#include "c10d/env.h"
#include "c10d/init.h"
#include "examples/training/trainer/trainer.h"

int main(int argc, char** argv) {
  const nn::Program program{"train_multinode",
                            "Trains a replica of the model on every rank of several hosts. "
                            "--print-commands shows how to start it.",
                            {"backend", "shards", "print-commands"}};
  return nn::run_program(program, argc, argv, [](nn::Options options) {
    if (!options.print_commands.empty()) nn::become_print_commands(options);
    // native works inside one host.
    if (options.backend.empty() && !c10d::env("C10D_BACKEND")) options.backend = "gloo";
    auto group = c10d::init_process_group({.backend = options.backend});
    nn::Trace trace(!options.trace.empty());
    const nn::Task task(options, group.size());
    const auto strategy = nn::replicated(task, group, trace);
    nn::train(task, *strategy, trace);
  });
}
