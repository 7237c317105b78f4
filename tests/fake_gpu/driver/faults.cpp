// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/driver/faults.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

namespace fake_gpu {
namespace {

using Action = Clause::Action;

thread_local int rank_of_thread = -1;

int rank_of_process() {
  for (const char* name : {"FAKE_GPU_RANK", "RANK"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return -1;
}

// The clauses for the next call of the function, or the next op of it.
std::vector<const Clause*> take_number(const std::string& function, bool is_op) {
  static std::mutex& mutex = *new std::mutex;
  static auto& numbers = *new std::map<std::pair<int, std::string>, std::uint64_t>;
  std::vector<const Clause*> found;
  const Script& all = script();
  if (all.clauses.empty()) return found;
  const int mine = rank();
  const std::lock_guard lock(mutex);
  const std::string key = (is_op ? "op " : "") + function;
  const std::uint64_t of_function = ++numbers[{mine, key}];
  const std::uint64_t of_all = is_op ? ++numbers[{mine, "op"}] : 0;
  for (const Clause& clause : all.clauses) {
    if (clause.is_op != is_op || (clause.rank != -1 && clause.rank != mine)) continue;
    if (!clause.function.empty() && clause.function != function) continue;
    const std::uint64_t number = clause.function.empty() ? of_all : of_function;
    if (number >= clause.first && number <= clause.last) found.push_back(&clause);
  }
  return found;
}

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

template <class IsOver>
void hang(bool for_ever, IsOver is_over) {
  while (for_ever || !is_over()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Returns the code of the last `result`, or kNoFault.
template <class IsOver>
int carry_out(const std::vector<const Clause*>& clauses, IsOver is_over) {
  int result = kNoFault;
  for (const Clause* clause : clauses) {
    switch (clause->action) {
      case Action::result:
        result = clause->result;
        break;
      case Action::delay:
        std::this_thread::sleep_for(clause->delay);
        break;
      case Action::hang:
        hang(false, is_over);
        break;
      case Action::hang_for_ever:
        hang(true, is_over);
        break;
      case Action::kill:
        die();
      case Action::kill_after:
        break;
    }
  }
  return result;
}

}  // namespace

int fault(const char* function, const AbortFlag* abort) {
  return carry_out(take_number(function, false), [&] { return abort && abort->raised; });
}

OpFaults op_faults(const std::string& function) { return take_number(function, true); }

bool before_op(const OpFaults& faults, Running& running, const AbortFlag* abort) {
  const int result =
      carry_out(faults, [&] { return running.is_over() || (abort && abort->raised.load()); });
  if (result != kNoFault && result != 0) running.fail(static_cast<cu::Result>(result));
  return result == kNoFault && !running.is_over();
}

void after_op(const OpFaults& faults) {
  for (const Clause* clause : faults) {
    if (clause->action == Action::kill_after) die();
  }
}

std::uint64_t seed() { return script().seed; }

void set_rank(int rank) { rank_of_thread = rank; }

int rank() {
  static const int of_process = rank_of_process();
  if (rank_of_thread >= 0) return rank_of_thread;
  return of_process >= 0 ? of_process : current_device();
}

}  // namespace fake_gpu
