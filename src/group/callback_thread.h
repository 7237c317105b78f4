// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <list>

#include "src/group/work_shared.h"

namespace c10d { inline namespace v0 {

// Calls a user's callback here and now. What it throws is logged.
void run_callback(const detail::Callback& callback) noexcept;
// Has the callback thread run, so that what ends an op has no thread to start. Throws
// DistBackendError (out_of_resources) when it cannot, or when too many callbacks wait for their
// turn.
void prepare_callbacks();
// Runs the callbacks one by one, in order, on a thread of their own, so that none delays an op.
// Allocates nothing.
void run_on_callback_thread(std::list<detail::Callback>& callbacks) noexcept;

}}  // namespace c10d::v0
