// SPDX-License-Identifier: BSD-3-Clause
#include "src/sync/wait_look.h"

#include <chrono>

namespace c10d { inline namespace v0 {
namespace {

thread_local WaitHook* t_hook = nullptr;

}  // namespace

WaitHook::WaitHook(bool (*look)(void* state), void* state) noexcept
    : look_(look), state_(state), before_(t_hook) {
  t_hook = this;
}

WaitHook::~WaitHook() { t_hook = before_; }

bool WaitLook::wanted() noexcept { return t_hook != nullptr; }

// A hook is new with each call: to read the clock there would cost a short op a tenth of its time.
Deadline WaitLook::next() noexcept {
  if (t_hook == nullptr) return Deadline::max();
  if (t_hook->next_ == Deadline{}) t_hook->next_ = std::chrono::steady_clock::now() + kLookPeriod;
  return t_hook->next_;
}

bool WaitLook::due() noexcept {
  if (t_hook == nullptr || std::chrono::steady_clock::now() < next()) return false;
  t_hook->next_ = {};
  return t_hook->look_(t_hook->state_);
}

Failure WaitLook::failure() {
  return {.code = Code::revoked, .message = "the program ended the wait (WaitHook)"};
}

}}  // namespace c10d::v0
