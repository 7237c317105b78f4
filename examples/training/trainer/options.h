// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nn {

// What the command line of every training program says.
struct Options {
  std::string model = "babycnn";
  std::string data = "digits";
  std::string backend;
  int epochs = 3;
  std::int64_t batch_size = 32;        // per rank or replica
  std::int64_t global_batch_size = 0;  // 0: batch_size times the ranks
  float rate = 0.001F;
  std::string optimizer = "adamw";
  std::string schedule = "constant";
  int shift = 0;  // pixels
  std::uint64_t seed = 1;
  int shards = 8;  // of a batch; micro-batches of train_pipeline
  bool reproducible = true;
  std::string checkpoint;       // directory; empty: none
  std::int64_t save_every = 0;  // steps; 0: after every epoch
  std::int64_t steps = 0;       // 0: all
  std::string trace;            // file; empty: none
  bool plan = false;
  // Of some programs only.
  int ranks = 2;                     // threads of train_data_parallel, processes of train_spawn
  std::string pipeline = "1f1b";     // its schedule
  int stages_per_rank = 0;           // 0: as many as the schedule needs
  int zero = 3;                      // of train_fsdp: 1, 2 or 3
  int replicas = 1;                  // of train_fsdp: sets of parts
  std::string print_commands;        // of train_multinode: hosts, as c10d-run -H takes them
  std::vector<std::string> command;  // the whole line, for programs that start themselves
};

// A training program: its name, what --help begins with, and which of the options above it takes
// besides those that all take.
struct Program {
  std::string name;
  std::string about;
  std::vector<std::string> extras;  // "ranks", "print-commands", "pipeline", "zero",
                                    // "replicas"
};

// Reads the command line, calls `body`, and prints what it throws as one line. The exit status.
int run_program(const Program& program, int argc, char** argv,
                const std::function<void(const Options&)>& body);

}  // namespace nn
