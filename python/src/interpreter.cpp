// SPDX-License-Identifier: BSD-3-Clause
#include "python/src/interpreter.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace nb = nanobind;

namespace c10d { namespace python {
namespace {

std::atomic<bool> g_ended = false;
std::atomic<int> g_inside = 0;
thread_local bool t_ends = false;  // of the thread that ends the interpreter

}  // namespace

LibraryThread::LibraryThread() noexcept {
  g_inside.fetch_add(1);
  if (g_ended.load()) {
    g_inside.fetch_sub(1);
    return;
  }
  state_ = PyGILState_Ensure();
  inside_ = true;
}

LibraryThread::~LibraryThread() {
  if (!inside_) return;
  PyGILState_Release(state_);
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
  while (g_inside.load() != 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
}

void LibraryThread::forget() noexcept { g_inside.store(0); }

WithoutGil::~WithoutGil() {
  g_inside.fetch_add(1);
  if (g_ended.load() && !t_ends) {
    g_inside.fetch_sub(1);
    while (true) ::pause();
  }
  PyEval_RestoreThread(state_);
  g_inside.fetch_sub(1);
}

bool Signals::look(void* self) {
  auto& signals = *static_cast<Signals*>(self);
  if (signals.error_) return true;
  const LibraryThread inside;
  if (!inside || PyErr_CheckSignals() == 0) return false;
  signals.error_.emplace();
  if (signals.group_ != nullptr) {
    const WithoutGil released;
    signals.group_->abort("a signal handler of Python raised an exception: Ctrl-C, for example");
  }
  return true;
}

void Signals::rethrow() {
  if (!error_) return;
  throw nb::python_error(*std::exchange(error_, std::nullopt));
}

}}  // namespace c10d::python
