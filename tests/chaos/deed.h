// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <thread>

#include "c10d/process_group.h"
#include "tests/chaos/board.h"

namespace c10d::chaos {

// An exception of the program's own.
struct Leaving {};

// What the culprit does to itself: at once, or from another thread while its step runs.
class Deed {
 public:
  Deed(const Plan& plan, RankBoard& board) : plan_(plan), board_(board) {}
  // Waits for the thread: a deed whose time has not come is done then.
  ~Deed() { finish(); }
  Deed(const Deed&) = delete;
  Deed& operator=(const Deed&) = delete;

  // Of that step, which begins now. Throws Leaving. `group`: for abort(), or null.
  void begin(int step, const ProcessGroup* group);
  void finish();

 private:
  void act(const ProcessGroup* group);

  const Plan& plan_;
  RankBoard& board_;
  std::thread thread_;
};

}  // namespace c10d::chaos
