// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

namespace c10d::inline v0 {

// Runs user callbacks one by one, in order, on a thread of their own, so that none delays an op. What a callback
// throws is logged.
void run_on_callback_thread(std::function<void()> callback);

}  // namespace c10d::inline v0
