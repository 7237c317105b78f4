// SPDX-License-Identifier: BSD-3-Clause
// The line in FAKE_GPU. README.md has its grammar.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fake_gpu {

// What happens to calls of a function, or to ops on streams.
struct Clause {
  enum class Action { result, delay, hang, hang_for_ever, kill, kill_after };
  int rank = -1;         // -1: every rank
  bool is_op = false;    // an op on a stream; else a call
  std::string function;  // empty: ops of every function
  std::uint64_t first = 1, last = ~std::uint64_t{0};
  Action action = Action::result;
  int result = 0;
  std::chrono::microseconds delay{0};
};

struct Script {
  int devices = 8;
  std::uint64_t memory = std::uint64_t{80} << 30;  // of each device
  std::uint64_t seed = 1;
  std::string watcher;  // name of the threads that must never block
  int places = 0;       // how many callers are a place
  std::vector<Clause> clauses;
};

struct ReadScript {
  Script script;
  std::string mistake;  // empty if there is none
  std::size_t at = 0;   // the byte of the line where it is
};
ReadScript read_script(std::string_view line);

// That of the environment. Ends the process if it cannot be read.
const Script& script();

}  // namespace fake_gpu
