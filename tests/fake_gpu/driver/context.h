// SPDX-License-Identifier: BSD-3-Clause
// Devices, their primary contexts, and what each call of the driver asks first.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "tests/fake_gpu/driver/handles.h"
#include "tests/fake_gpu/gpu.h"

namespace fake_gpu {

struct Stream;

// The primary context of a device. It is made with the device and lasts; what is in it goes with
// the last release.
struct Context {
  int device = 0;  // as the process counts them
  int card = 0;    // of the machine
  std::atomic<bool> is_active{false};
  std::atomic<int> broken{0};  // the error that every later call returns
  std::mutex order;            // of what is enqueued: the legacy stream joins others
  std::shared_ptr<Stream> legacy;
  std::vector<std::shared_ptr<Stream>> streams;  // all others that live or still work
  int retained = 0;                              // under the mutex of all contexts

  cu::Context handle() const;
};

// Empty before cuInit.
std::vector<std::unique_ptr<Context>>& contexts();
Context* context_of(cu::Context handle);  // null if it is none
Context* context_of_device(int device);
// Of the calling thread; null if there is none.
Context* current();
std::vector<Context*>& context_stack();

bool is_initialized();   // in this process
bool was_initialized();  // in this or in one that it was forked from
void set_initialized();
// From now on every call returns the code, and what is enqueued is dropped.
void break_context(Context& context, cu::Result code);
// Sticky errors: those after which the driver's context is of no use.
bool breaks_context(int result);

// The code that a call returns for what is in the context; nothing if it may go on.
std::optional<cu::Result> refusal(const Context& context);

// What a function asks before it does anything. Functions that take a handle need no context: they
// are in that of the handle.
enum Rule : unsigned {
  kNeedsInit = 1,
  kNeedsContext = 3,  // and that it is not broken
  kEvenInHostFunction = 4,
  kWorksInHostFunction = 32,  // forbidden, but the driver does not see it
  kMayBlock = 8,              // not on a watcher's thread
  kUnsafeInCapture = 16,      // what cuThreadExchangeStreamCaptureMode calls potentially unsafe
};
// What the call must return at once; nothing if it may go on. The first looks at the script and the
// thread, the second at the context and captures.
std::optional<cu::Result> begin_call(const char* function, unsigned rules);
std::optional<cu::Result> check_state(const char* function, unsigned rules);
std::optional<cu::Result> enter(const char* function, unsigned rules);
#define FAKE_GPU_CHECK(rules) \
  if (const auto refused = ::fake_gpu::check_state(__func__, rules)) return *refused
#define FAKE_GPU_ENTER(rules) \
  if (const auto at_once = ::fake_gpu::enter(__func__, rules)) return *at_once

// While one lives, the thread runs a host function.
class InHostFunction {
 public:
  InHostFunction();
  ~InHostFunction();
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
};

#define FAKE_GPU_API extern "C" __attribute__((visibility("default"))) cu::Result

}  // namespace fake_gpu
