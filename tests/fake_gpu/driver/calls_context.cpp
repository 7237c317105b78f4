// SPDX-License-Identifier: BSD-3-Clause
// cuInit, primary contexts, the stacks of threads.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/fake_gpu/driver/script.h"
#include "tests/fake_gpu/driver/stream.h"

namespace fake_gpu {
namespace {

std::mutex& contexts_mutex() {
  static std::mutex& only = *new std::mutex;
  return only;
}
void open_kernels() {
  const char* names = std::getenv("FAKE_GPU_KERNELS");
  std::string rest = names ? names : "";
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0 && !dlopen(rest.substr(0, end).c_str(), RTLD_NOW | RTLD_LOCAL)) {
      std::fprintf(stderr, "FAKE_GPU_KERNELS: %s\n", dlerror());
      _exit(2);
    }
    rest.erase(0, end + 1);
  }
}

// Of those of the machine, in the order of CUDA_VISIBLE_DEVICES, up to the first that is none.
cu::Result visible_devices(std::vector<int>& visible) {
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; !list && i < script().devices; ++i) visible.push_back(i);
  for (const char* at = list; at && *at;) {
    char* end = nullptr;
    const long card = std::strtol(at, &end, 10);
    if (end == at || card < 0 || card >= script().devices) break;
    if (std::count(visible.begin(), visible.end(), card) != 0) return cu::kInvalidDevice;
    visible.push_back(static_cast<int>(card));
    if (*end != ',') break;
    at = end + 1;
  }
  return visible.empty() ? cu::kNoDevice : cu::kSuccess;
}

// What is in the context goes. Locked by the caller.
void destroy(Context& context) {
  const int left = destroy_streams_and_events(context) + free_memory_of(context.device);
  if (left > 0) {
    violation("left in a context", "the primary context of device " +
                                       std::to_string(context.device) +
                                       " was released for the last time with streams, events or "
                                       "memory in it");
  }
  context.is_active = false;
}

}  // namespace

FAKE_GPU_API cuInit(unsigned flags) {
  FAKE_GPU_ENTER(kEvenInHostFunction);
  if (flags != 0) return cu::kInvalidValue;
  const std::lock_guard lock(contexts_mutex());
  if (is_initialized()) return cu::kSuccess;
  // A process that was forked from one with a GPU has none of it.
  if (was_initialized()) return cu::kNotInitialized;
  begin_report();
  std::vector<int> visible;
  if (const cu::Result result = visible_devices(visible); result != cu::kSuccess) return result;
  for (const int card : visible) {
    auto context = std::make_unique<Context>();
    context->device = static_cast<int>(contexts().size());
    context->card = card;
    contexts().push_back(std::move(context));
  }
  set_initialized();
  open_kernels();
  return cu::kSuccess;
}

FAKE_GPU_API cuDriverGetVersion(int* version) {
  FAKE_GPU_ENTER(kEvenInHostFunction);
  if (!version) return cu::kInvalidValue;
  *version = 13000;
  return cu::kSuccess;
}

FAKE_GPU_API cuDevicePrimaryCtxRetain(cu::Context* handle, cu::Device device) {
  FAKE_GPU_ENTER(kNeedsInit | kMayBlock);
  Context* const context = context_of_device(device);
  if (!handle) return cu::kInvalidValue;
  if (!context) return cu::kInvalidDevice;
  const std::lock_guard lock(contexts_mutex());
  // What broke it stays in the process, even after the last release.
  if (context->broken != 0) return static_cast<cu::Result>(context->broken.load());
  *handle = context->handle();
  if (context->retained++ == 0) {
    context->legacy = make_stream(*context, 0, true);
    context->is_active = true;
  }
  return cu::kSuccess;
}

FAKE_GPU_API cuDevicePrimaryCtxRelease_v2(cu::Device device) {
  FAKE_GPU_ENTER(kNeedsInit | kMayBlock);
  Context* const context = context_of_device(device);
  if (!context) return cu::kInvalidDevice;
  const std::lock_guard lock(contexts_mutex());
  if (context->retained == 0) {
    violation("no context", "a primary context was released more often than retained");
    return cu::kInvalidContext;
  }
  if (context->retained == 1) {
    synchronize(*context);  // whatever it gives: a broken context goes too
    destroy(*context);
  }
  --context->retained;
  return cu::kSuccess;
}

FAKE_GPU_API cuDevicePrimaryCtxGetState(cu::Device device, unsigned* flags, int* active) {
  FAKE_GPU_ENTER(kNeedsInit);
  Context* const context = context_of_device(device);
  if (!context) return cu::kInvalidDevice;
  if (flags) *flags = 0;
  if (active) *active = context->is_active;
  return cu::kSuccess;
}

FAKE_GPU_API cuCtxGetCurrent(cu::Context* handle) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!handle) return cu::kInvalidValue;
  *handle = current_context();
  return cu::kSuccess;
}

FAKE_GPU_API cuCtxPushCurrent_v2(cu::Context handle) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!handle) return cu::kInvalidValue;
  Context* context = context_of(handle);
  if (!context) {
    // The driver takes it, and what follows fails.
    static Context& none = *new Context;
    violation("no context", "what is no context was pushed");
    context = &none;
  }
  context_stack().push_back(context);
  return cu::kSuccess;
}

FAKE_GPU_API cuCtxPopCurrent_v2(cu::Context* handle) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (context_stack().empty()) return cu::kInvalidContext;
  if (handle) *handle = current_context();
  context_stack().pop_back();
  return cu::kSuccess;
}

FAKE_GPU_API cuCtxSetCurrent(cu::Context handle) {
  FAKE_GPU_ENTER(kNeedsInit);
  Context* const context = context_of(handle);
  if (handle && !context) return cu::kInvalidContext;
  if (!context_stack().empty()) context_stack().pop_back();
  if (context) context_stack().push_back(context);
  return cu::kSuccess;
}

FAKE_GPU_API cuCtxGetDevice(cu::Device* device) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!current()) return cu::kInvalidContext;
  if (!device) return cu::kInvalidValue;
  *device = current()->device;
  return cu::kSuccess;
}

FAKE_GPU_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_GPU_ENTER(kNeedsContext);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cu::kSuccess;
}

}  // namespace fake_gpu
