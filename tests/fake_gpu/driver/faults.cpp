// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/driver/faults.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
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

// The calls of all ranks of the process. Never destroyed, as the judge.
struct Counts {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, std::uint64_t> numbers;  // of a rank and a function
  std::map<std::string, Calls> calls;
};
Counts& counts() {
  static Counts& only = *new Counts;
  return only;
}

// The calls that led to this one, innermost first, as FILE+OFFSET with "<" between them. Those of
// the stand-ins do not count, nor what a sanitizer puts around backtrace().
std::string place_of_call(int callers) {
  std::array<void*, 32> frames{};
  const int depth = backtrace(frames.data(), static_cast<int>(frames.size()));
  std::ostringstream place;
  bool is_in_stand_in = false;
  for (int i = 0; i < depth && callers > 0; ++i) {
    Dl_info info{};
    if (dladdr(frames[static_cast<std::size_t>(i)], &info) == 0) continue;
    const std::string path = info.dli_fname;
    const std::string file = path.substr(path.rfind('/') + 1);
    is_in_stand_in = is_in_stand_in || file.starts_with("libfake_");
    if (!is_in_stand_in || file.starts_with("libfake_")) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(frames[static_cast<std::size_t>(i)]);
    const auto offset = address - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
    place << (place.tellp() > 0 ? "<" : "") << file << "+0x" << std::hex << offset;
    --callers;
  }
  return place.str();
}

void note_call(Counts& all, const std::string& function, std::uint64_t number) {
  Calls& calls = all.calls[function];
  ++calls.count;
  if (script().places > 0) calls.first.try_emplace(place_of_call(script().places), number);
}

// The clauses for the next call of the function, or the next op of it.
std::vector<const Clause*> take_number(const std::string& function, bool is_op) {
  std::vector<const Clause*> found;
  const Script& all = script();
  if (all.clauses.empty() && all.places == 0) return found;
  const int mine = rank();
  Counts& known = counts();
  const std::lock_guard lock(known.mutex);
  const std::string key = (is_op ? "op " : "") + function;
  const std::uint64_t of_function = ++known.numbers[{mine, key}];
  if (!is_op) note_call(known, function, of_function);
  const std::uint64_t of_all = is_op ? ++known.numbers[{mine, "op"}] : 0;
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

std::map<std::string, Calls> calls() {
  Counts& known = counts();
  const std::lock_guard lock(known.mutex);
  return known.calls;
}

std::uint64_t seed() { return script().seed; }

void set_rank(int rank) { rank_of_thread = rank; }

int rank() {
  static const int of_process = rank_of_process();
  if (rank_of_thread >= 0) return rank_of_thread;
  return of_process >= 0 ? of_process : current_device();
}

}  // namespace fake_gpu
