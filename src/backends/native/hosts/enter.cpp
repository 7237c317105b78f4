// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/enter.h"

#include <chrono>

#include "src/sync/fiber.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

std::shared_ptr<const Failure> enter_in_fiber(Control& control, const Call& call) {
  control.announce(call);
  for (;;) {
    switch (control.poll_agreement(call)) {
      case Control::Agreement::agreed:
        return nullptr;
      case Control::Agreement::failed:
        return control.failure();
      case Control::Agreement::pending:
        break;
    }
    if (std::chrono::steady_clock::now() >= call.deadline)
      return control.fail(control.timed_out(
          call, call.carried.empty() ? "waiting for all ranks to enter the call"
                                     : "waiting for all ranks to enter the call with their data"));
    Fiber::yield(Poll::idle);
  }
}

}  // namespace

std::shared_ptr<const Failure> enter(Control& control, const Call& call) {
  return Fiber::running() ? enter_in_fiber(control, call)
                          : control.agree(call, Control::Waiting::spin);
}

}}}  // namespace c10d::v0::native
