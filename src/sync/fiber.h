// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>

#include "src/sync/progress_thread.h"

namespace c10d { inline namespace v0 {

// A function with a stack of its own that can stop in the middle: how an op that is written as
// straight code makes progress beside others on one thread. A fiber stays on the thread that first
// resumed it. Stacks come from a pool. The body must not throw; a fiber that has started must end
// before it is destroyed.
class Fiber {
 public:
  // `takes_turns`: with others, for whose sake it polls but for a moment before it yields.
  explicit Fiber(std::function<void()> body, bool takes_turns = false);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Runs the body until it yields or ends. Returns what it yielded, or done.
  Poll resume();

  // Whether the caller runs in a fiber.
  static bool running() noexcept;
  // Whether it takes turns.
  static bool takes_turns() noexcept;
  // Gives control back to resume() of the running fiber.
  static void yield(Poll seen);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Hands a fiber with this body to the progress thread.
void run_fiber(std::function<void()> body);

// Runs both bodies on this thread, in fibers that take turns, until both have ended. Whoever makes
// the other one's wait end yields `busy` after that. Where neither has anything to do it calls
// `rest`, with how often it did since one of them had. A body or `rest` must not throw.
void run_in_turns(std::function<void()> first, std::function<void()> second,
                  const std::function<void(int rests)>& rest);

}}  // namespace c10d::v0
