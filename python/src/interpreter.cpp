// SPDX-License-Identifier: BSD-3-Clause
#include "python/src/interpreter.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

namespace nb = nanobind;

namespace c10d { namespace python {
namespace {

std::atomic<bool> g_ended = false;
std::atomic<int> g_inside = 0;
thread_local bool t_ends = false;  // of the thread that ends the interpreter
thread_local int t_inside = 0;     // what of g_inside is this thread's

}  // namespace

LibraryThread::LibraryThread() noexcept {
  g_inside.fetch_add(1);
  if (g_ended.load()) {
    g_inside.fetch_sub(1);
    return;
  }
  ++t_inside;
  state_ = PyGILState_Ensure();
  inside_ = true;
}

LibraryThread::~LibraryThread() {
  if (!inside_) return;
  PyGILState_Release(state_);
  --t_inside;
  g_inside.fetch_sub(1);
}

void LibraryThread::begin_end() noexcept {
  t_ends = true;
  g_ended.store(true);
}

void LibraryThread::await_end() {
  constexpr std::chrono::seconds kPatience{5};
  const WithoutGil released;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (g_inside.load() > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
}

void LibraryThread::forget() noexcept { g_inside.store(0); }

void sleep_until_the_end() noexcept {
  while (true) ::pause();
}

WithoutGil::~WithoutGil() {
  g_inside.fetch_add(1);
  if (g_ended.load() && !t_ends) {
    g_inside.fetch_sub(1 + t_inside);  // nobody waits for a thread that never goes on
    sleep_until_the_end();
  }
  PyEval_RestoreThread(state_);
  g_inside.fetch_sub(1);
}

bool Signals::look(void* self) {
  auto& signals = *static_cast<Signals*>(self);
  if (signals.error_) return true;
  const LibraryThread inside;
  return inside && signals.handle();
}

bool Signals::handle() {
  const pid_t process = ::getpid();
  const bool raised = PyErr_CheckSignals() != 0;
  if (::getpid() != process) {  // within a call of the parent, which cannot go on here
    constexpr std::string_view kWhy =
        "c10d: a signal handler forked while its process was in a call of c10d; the child cannot "
        "return from the handler: call os._exit() or os.exec...() in it\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kWhy.data(), kWhy.size());
    ::_exit(1);
  }
  if (!raised) return false;
  error_.emplace();
  if (group_ != nullptr) {
    const WithoutGil released;
    group_->abort("a signal handler of Python raised an exception: Ctrl-C, for example");
  }
  return true;
}

void Signals::handle_and_rethrow() {
  if (!error_) handle();
  rethrow();
}

void Signals::rethrow() {
  if (!error_) return;
  throw nb::python_error(*std::exchange(error_, std::nullopt));
}

}}  // namespace c10d::python
