// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <list>
#include <memory>

#include "c10d/error.h"

namespace c10d { inline namespace v0 {

namespace detail {
struct WorkShared;
}

// What a user gave to Work::then.
struct Callback {
  std::function<void(const Failure*)> call;
  std::shared_ptr<detail::WorkShared> work;  // set once the work is done: keeps its failure
};

// Calls a user's callback here and now. What it throws is logged.
void run_callback(const Callback& callback) noexcept;
// Has the callback thread run, so that what ends an op has no thread to start. Throws
// DistBackendError (out_of_resources) when it cannot, or when too many callbacks wait for their
// turn.
void prepare_callbacks();
// Runs the callbacks one by one, in order, on a thread of their own, so that none delays an op.
// Allocates nothing.
void run_on_callback_thread(std::list<Callback>& callbacks) noexcept;

}}  // namespace c10d::v0
