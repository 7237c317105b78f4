// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <utility>

#include "c10d/process_group.h"
#include "c10d/work.h"
#include "python/src/buffer.h"
#include "python/src/documented.h"

namespace c10d { namespace python {

struct Buffers {
  Buffer output, input;
};

// What an async op uses until it is done. Its last owner may be a thread of the library.
struct Held : Buffers {
  Held() = default;
  ~Held();
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  ProcessGroup group;
  // The op may still use the buffers. MPI may write to those of an op that failed until the process
  // ends (docs/limits.md): they are then kept for ever.
  std::atomic<bool> in_use = false;
};

// A ProcessGroup of Python.
struct Group {
  explicit Group(ProcessGroup group);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  ProcessGroup handle;
  // Where the library itself waits, and so looks for signals. Gloo and MPI do not.
  const bool waits_in_c10d;
};

// A Work of Python: the op and what it uses. One that is dropped leaves its op to run on.
class PyWork {
 public:
  PyWork(Work work, std::shared_ptr<Held> held) : work_(std::move(work)), held_(std::move(held)) {}
  ~PyWork();
  PyWork(const PyWork&) = delete;
  PyWork& operator=(const PyWork&) = delete;

  void wait(nanobind::handle timeout);
  bool done();
  WorkState state() const { return work_.state(); }
  nanobind::object exception();
  nanobind::object received() const;
  // Calls `callback(exception or None)` once.
  void on_done(nanobind::object callback);

 private:
  void settle();

  Work work_;
  std::shared_ptr<Held> held_;
};

// One call of an op: its buffers, and how it runs.
class Call {
 public:
  Call(const char* name, Group& group, nanobind::handle timeout, bool async_op);
  View output(nanobind::handle object);
  ConstView input(nanobind::handle object);
  // Returns a Work of an async op, what a recv got, or None.
  nanobind::object submit(const Op& op);

 private:
  const char* const name_;
  Group& group_;
  CallOptions options_;
  const bool is_async_;
  Buffers here_;
  std::shared_ptr<Held> shared_;
  Buffers& buffers_;
};

// What is left to do when the interpreter ends: all groups of Python are shut down.
void end_python_groups();

void bind_group(nanobind::module_& module);
void bind_ops(Documented<Group>& group);
void bind_work(nanobind::module_& module);
void bind_stores(nanobind::module_& module);

}}  // namespace c10d::python
