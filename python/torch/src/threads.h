// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <functional>

namespace c10d_torch {

// Runs what hangs on a future: Python code that may wait for other ops, and for futures of them.
// So it gets a thread that nobody else needs: an idle one, else a new one.
void run_in_thread(std::function<void()> what);
// Waits until all of it is done; false if it is not by then.
bool wait_for_threads(std::chrono::milliseconds timeout);

}  // namespace c10d_torch
