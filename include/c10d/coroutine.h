// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <coroutine>
#include <utility>

#include "c10d/work.h"

// co_await for async ops, in coroutines of any type:
//
//     c10d::Received message = co_await group.async().recv(buffer, 0);
//
// The coroutine continues when the op is done: at once if it is done already, else in the callback
// thread of the library, as a callback of Work::on_done(). There it may start async ops and
// co_await them; it must not block on the group of the op. If the op failed, co_await throws its
// failure. The value is what a recv got, {-1, 0} for other ops. co_await throws what on_done()
// throws, too.
namespace c10d { inline namespace v0 {

namespace detail {

template <class HeldWork>  // Work, or const Work&
class WorkAwaiter {
 public:
  explicit WorkAwaiter(HeldWork&& work) noexcept : work_(std::forward<HeldWork>(work)) {}
  bool await_ready() const noexcept { return work_.done(); }
  void await_suspend(std::coroutine_handle<> coroutine) const {
    work_.on_done([coroutine](const Failure*) { coroutine.resume(); });
  }
  Received await_resume() const {
    work_.wait();
    return work_.received();
  }

 private:
  HeldWork work_;
};

}  // namespace detail

// Waits for an op whose Work lives on: the caller keeps it until the coroutine continues.
inline auto operator co_await(const Work& work) noexcept {
  return detail::WorkAwaiter<const Work&>(work);
}
// Waits for the op of a temporary Work.
inline auto operator co_await(Work&& work) noexcept {
  return detail::WorkAwaiter<Work>(std::move(work));
}

}}  // namespace c10d::v0
