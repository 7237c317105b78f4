// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <functional>

namespace c10d_torch {

// Runs what hangs on a future: Python code that may wait for other ops, and for futures of them.
// So it gets a thread that nobody else needs: an idle one, else a new one.
void run_in_thread(std::function<void()> what);

// A callback of the library is to come. It begins, unless the interpreter has ended: then it must
// not touch anything of Python. It is over once it has let go of all.
void expect_callback();
bool callback_begins();
void callback_is_over();  // in the process that expected it

// At the end of the interpreter: waits until all of these are over, for that long at most. What
// comes later never runs.
void close_threads(std::chrono::milliseconds timeout);

}  // namespace c10d_torch
