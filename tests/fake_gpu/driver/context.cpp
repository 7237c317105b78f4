// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/driver/context.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/fake_gpu/driver/script.h"

namespace fake_gpu {
namespace {

constexpr std::uintptr_t kFirstContext = 0x10000000;

std::atomic<pid_t> initialized_in{0};
thread_local int host_functions = 0;

// A line that cannot be read ends the process when the library is opened.
[[maybe_unused]] const Script& read_when_opened = script();

}  // namespace

cu::Context Context::handle() const {
  return reinterpret_cast<cu::Context>(kFirstContext + 16 * static_cast<std::uintptr_t>(device));
}

std::vector<std::unique_ptr<Context>>& contexts() {
  static auto& all = *new std::vector<std::unique_ptr<Context>>;
  return all;
}

Context* context_of_device(int device) {
  const bool there = device >= 0 && static_cast<std::size_t>(device) < contexts().size();
  return there ? contexts()[static_cast<std::size_t>(device)].get() : nullptr;
}

Context* context_of(cu::Context handle) {
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(handle) - kFirstContext;
  return offset % 16 == 0 && offset / 16 < 64 ? context_of_device(static_cast<int>(offset / 16))
                                              : nullptr;
}

std::vector<Context*>& context_stack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

Context* current() { return context_stack().empty() ? nullptr : context_stack().back(); }

bool breaks_context(int result) {
  switch (result) {
    case 214:  // ECC
    case 220:  // NVLink
    case 226:  // contained
    case 700:
    case 702:
    case 710:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
      return true;
    default:
      return false;
  }
}

void break_context(Context& context, cu::Result code) {
  int none = 0;
  context.broken.compare_exchange_strong(none, code);
}

std::optional<cu::Result> refusal(const Context& context) {
  if (!context.is_active) return cu::kContextIsDestroyed;
  if (context.broken != 0) return static_cast<cu::Result>(context.broken.load());
  return std::nullopt;
}

std::optional<cu::Result> begin_call(const char* function, unsigned rules) {
  if (host_functions > 0 && !(rules & kEvenInHostFunction)) {
    violation("host function", std::string("a host function called ") + function);
    if (!(rules & kWorksInHostFunction)) return cu::kNotPermitted;
  }
  if (rules & kMayBlock) note_blocking_call(function);
  if (const int result = fault(function); result != kNoFault) {
    if (Context* const context = current(); context && breaks_context(result)) {
      break_context(*context, static_cast<cu::Result>(result));
    }
    return static_cast<cu::Result>(result);
  }
  return std::nullopt;
}

std::optional<cu::Result> check_state(const char* function, unsigned rules) {
  if ((rules & kNeedsInit) && !is_initialized()) return cu::kNotInitialized;
  if ((rules & kNeedsContext) == kNeedsContext) {
    Context* const context = current();
    if (!context) {
      violation("no context", std::string(function) + " was called on a thread without context");
      return cu::kInvalidContext;
    }
    if (const auto code = refusal(*context)) {
      if (*code == cu::kContextIsDestroyed) {
        violation("no context", std::string(function) + " was called in a destroyed context");
      }
      return code;
    }
  }
  if ((rules & kUnsafeInCapture) && is_forbidden_by_capture()) {
    violation("in a capture", std::string(function) + " was called while a capture forbids it");
    return cu::kStreamCaptureUnsupported;
  }
  return std::nullopt;
}

std::optional<cu::Result> enter(const char* function, unsigned rules) {
  const auto at_once = begin_call(function, rules);
  return at_once ? at_once : check_state(function, rules);
}

InHostFunction::InHostFunction() { ++host_functions; }
InHostFunction::~InHostFunction() { --host_functions; }

cu::Context current_context() { return current() ? current()->handle() : nullptr; }
int current_device() { return current() ? current()->device : -1; }
bool is_initialized() { return initialized_in == getpid(); }
bool was_initialized() { return initialized_in != 0; }
void set_initialized() { initialized_in = getpid(); }

void note_blocking_call(const char* function) {
  if (script().watcher.empty()) return;
  char name[32] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  if (script().watcher == name) {
    violation("watcher", std::string("a thread that must not block called ") + function);
  }
}

}  // namespace fake_gpu
