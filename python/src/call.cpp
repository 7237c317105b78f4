// SPDX-License-Identifier: BSD-3-Clause
#include "python/src/call.h"

#include <cxxabi.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>

#include "c10d/wait_hook.h"
#include "python/src/arguments.h"
#include "python/src/errors.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;

namespace c10d { namespace python {
namespace {

// The groups that Python has. With the GIL.
std::set<Group*>& groups() {
  static auto& all = *new std::set<Group*>();
  return all;
}

}  // namespace

Held::~Held() {
  const LibraryThread inside;
  for (Buffer* buffer : {&output, &input})
    inside && !in_use ? buffer->release() : buffer->abandon();
  if (!inside) return;
  const WithoutGil released;
  group = ProcessGroup();  // may wait for its ops
}

Group::Group(ProcessGroup group)
    : handle(std::move(group)), waits_in_c10d(handle && handle.backend() == "native") {
  groups().insert(this);
}

// The end of a group may wait for its ops.
Group::~Group() {
  groups().erase(this);
  const WithoutGil released;
  handle = ProcessGroup();
}

void end_python_groups() {
  using std::chrono::steady_clock;
  std::vector<ProcessGroup> all;
  for (const Group* group : groups())
    if (group->handle) all.push_back(group->handle);
  const WithoutGil released;
  const auto end = steady_clock::now() + std::chrono::seconds(1);  // of all together
  for (const ProcessGroup& group : all) try {
      group.shutdown(std::max<Duration>(end - steady_clock::now(), Duration::zero()));
    } catch (const DistError& error) {  // its ops still run, or another thread uses it
      if (error.code() != Code::forked_child) group.abort("its process ends");
    } catch (const std::exception&) {  // logged
    }
}

PyWork::~PyWork() {
  settle();
  const WithoutGil released;
  if (!work_.done()) try {
      detach(std::move(work_), [held = std::move(held_)](const Failure* failure) {
        if (failure == nullptr) held->in_use = false;
      });
    } catch (const std::exception&) {  // no thread for it: the Work has waited
    }
  work_ = Work();
}

void PyWork::settle() {
  if (!held_ || !work_.done()) return;
  if (work_.state() == WorkState::ok) held_->in_use = false;
  held_.reset();
}

void PyWork::wait(nb::handle timeout) {
  const auto limit = duration_of(timeout, "timeout");
  const auto held = held_;  // another thread may settle
  try {
    without_gil(held ? &held->group : nullptr, [&] { limit ? work_.wait(*limit) : work_.wait(); });
  } catch (...) {
    settle();
    throw;
  }
  settle();
}

bool PyWork::done() {
  settle();
  return work_.done();
}

nb::object PyWork::exception() {
  settle();
  const Failure* const failure = work_.failure();
  return failure == nullptr ? nb::none() : exception_of(*failure);
}

nb::object PyWork::received() const {
  const Received received = work_.received();
  return received.source < 0 ? nb::none() : nb::cast(received);
}

void PyWork::on_done(nb::object callback) {
  // The library may drop it in a thread of its own.
  struct Callback {
    explicit Callback(nb::object function_) : function(std::move(function_)) {}
    ~Callback() {
      const LibraryThread inside;
      inside ? function.reset() : (void)function.release();
    }
    nb::object function;
  };
  auto kept = std::make_shared<Callback>(std::move(callback));
  work_.on_done([kept = std::move(kept)](const Failure* failure) {
    const LibraryThread inside;
    if (!inside) return;
    try {
      kept->function(failure == nullptr ? nb::none() : exception_of(*failure));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a callback of c10d.Work.on_done()");
    } catch (const abi::__forced_unwind&) {
      sleep_until_the_end();  // the interpreter has ended, and with it each thread in Python
    }
  });
}

Call::Call(const char* name, Group& group, nb::handle timeout, bool async_op)
    : name_(name),
      group_(group),
      options_{.timeout = duration_of(timeout, "timeout")},
      is_async_(async_op),
      shared_(async_op || !group.waits_in_c10d ? std::make_shared<Held>() : nullptr),
      buffers_(shared_ ? static_cast<Buffers&>(*shared_) : here_) {}

View Call::output(nb::handle object) {
  return buffers_.output.take(object, {name_, "output"}, Buffer::Use::write);
}

ConstView Call::input(nb::handle object) {
  return buffers_.input.take(object, {name_, "input"}, Buffer::Use::read);
}

nb::object Call::submit(const Op& op) {
  const ProcessGroup& group = group_.handle;
  const auto start = [&] {
    Work work = group.async().submit(op, options_);
    shared_->in_use = !group_.waits_in_c10d && work.state() != WorkState::ok;
    return work;
  };
  if (is_async_) {
    shared_->group = group;
    Work work = without_gil(&group, start);
    return nb::cast(new PyWork(std::move(work), std::move(shared_)), nb::rv_policy::take_ownership);
  }
  const Received received = without_gil(&group, [&] {
    if (group_.waits_in_c10d) return group.submit(op, options_);
    const Work work = start();
    work.wait();
    shared_->in_use = false;
    return work.received();
  });
  return received.source < 0 ? nb::none() : nb::cast(received);
}

}}  // namespace c10d::python
