// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

namespace c10d::inline v0 {

// Calls a user's callback here and now. What it throws is logged.
void run_callback(const std::function<void()>& callback) noexcept;
// Runs user callbacks one by one, in order, on a thread of their own, so that none delays an op.
void run_on_callback_thread(std::function<void()> callback);

}  // namespace c10d::inline v0
