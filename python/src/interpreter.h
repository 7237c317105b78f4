// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <type_traits>
#include <utility>

#include "c10d/process_group.h"
#include "c10d/wait_hook.h"

namespace c10d { namespace python {

// The GIL for a thread of the library, until this ends. Once the interpreter is about to end no
// such thread gets it: then it is false, and what it wanted to do is left undone.
class LibraryThread {
 public:
  LibraryThread() noexcept;
  ~LibraryThread();
  LibraryThread(const LibraryThread&) = delete;
  LibraryThread& operator=(const LibraryThread&) = delete;
  explicit operator bool() const noexcept { return inside_; }

  // From now on none gets it, and a thread of Python that comes back from the library sleeps until
  // the process ends, as in Python 3.14: to take the GIL then would end it within C++.
  static void begin_end() noexcept;
  // Returns when none of them is about to take the GIL. With the GIL.
  static void await_end();
  // In a forked child, which has none of them.
  static void forget() noexcept;

 private:
  bool inside_ = false;
  PyGILState_STATE state_{};
};

// Of a thread that Python may no longer run.
[[noreturn]] void sleep_until_the_end() noexcept;

// Gives up the GIL until this ends.
class WithoutGil {
 public:
  WithoutGil() noexcept : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// Handles the signals of Python while this thread is in a call of the library without the GIL: an
// exception of a handler, such as KeyboardInterrupt, aborts the group and ends the wait.
class Signals {
 public:
  // `group` may be null: a wait for a store.
  explicit Signals(const ProcessGroup* group) noexcept : group_(group), hook_(&look, this) {}
  // Throws the exception of the handler, if there was one. With the GIL.
  void rethrow();
  // The same, and calls the handlers of the signals that wait for that.
  void handle_and_rethrow();
  bool has_error() const noexcept { return error_.has_value(); }

 private:
  bool handle();
  static bool look(void* self);

  const ProcessGroup* const group_;
  std::optional<nanobind::python_error> error_;
  WaitHook hook_;
};

// Runs a call of the library without the GIL, and handles signals meanwhile.
template <class Call>
auto without_gil(const ProcessGroup* group, Call&& call) {
  Signals signals(group);
  using Result = decltype(call());
  try {
    if constexpr (std::is_void_v<Result>) {
      {
        const WithoutGil released;
        call();
      }
      signals.rethrow();
    } else {
      std::optional<Result> result;
      {
        const WithoutGil released;
        result.emplace(call());
        if (signals.has_error()) result.reset();  // the end of a group or a Work may wait
      }
      signals.rethrow();
      return *std::move(result);
    }
  } catch (const nanobind::python_error&) {
    throw;
  } catch (...) {
    // It is the cause, also where the same Ctrl-C has reached another rank before and this one
    // failed of that.
    signals.handle_and_rethrow();
    throw;
  }
}

}}  // namespace c10d::python
