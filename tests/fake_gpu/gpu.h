// SPDX-License-Identifier: BSD-3-Clause
// What the stand-in for the driver gives the stand-in for NCCL and the host bodies of kernels.
// libfake_cuda.so exports it; who uses it links that library, so that a process has one GPU.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/device/driver.h"

#define FAKE_GPU_EXPORT __attribute__((visibility("default")))

namespace fake_gpu {

namespace cu = c10d::driver;

// --- Memory

// The bytes behind an address: those of device memory by its shadow, those of pinned host memory
// themselves. Null unless one allocation holds all of them. Bodies of ops only: host code has no
// business there.
FAKE_GPU_EXPORT std::byte* view(cu::Pointer at, std::size_t bytes);
FAKE_GPU_EXPORT std::byte* view(const void* at, std::size_t bytes);

// Memory as cuMemCreate makes it, on the device of the thread: cuMemFree and the IPC handle refuse
// it, and a capture does not mind. No other memory can be released. `function` is for the judge.
FAKE_GPU_EXPORT cu::Result create_memory(const char* function, std::size_t bytes, cu::Pointer& at);
FAKE_GPU_EXPORT cu::Result release_memory(const char* function, cu::Pointer at);
FAKE_GPU_EXPORT bool is_created(cu::Pointer at);

// Device memory as another process finds it.
struct Shared {
  std::int32_t pid, descriptor;  // of the process, and its file /proc/PID/fd/N
  std::uint64_t offset, bytes;
  std::uint64_t token;  // tells a later allocation at the same place from this one
};
// The whole allocation that holds `at`. Returns false if there is none of this process.
FAKE_GPU_EXPORT bool share(cu::Pointer at, Shared& shared);
// The bytes of it, here: unmapped when the last owner is gone. Null if the other process has ended
// or has freed it.
FAKE_GPU_EXPORT std::shared_ptr<std::byte> map(const Shared& shared);

// --- Ops on streams

// Ends ops from outside. One for each communicator.
struct AbortFlag {
  std::atomic<bool> raised{false};
};

// A part of the memory that an op uses. It must not be freed before the op is done.
struct Range {
  cu::Pointer at = 0;
  std::size_t bytes = 0;
};

// What the body of an op sees of the world. A body that waits asks is_over() at least once in a
// millisecond, and returns when it is.
class FAKE_GPU_EXPORT Running {
 public:
  virtual bool is_over() const = 0;          // aborted, or the context is broken
  virtual void fail(cu::Result result) = 0;  // breaks the context, as an error of a kernel does
 protected:
  ~Running() = default;
};

struct Op {
  std::string name;  // as faults and the judge call it: of the function that enqueues it
  std::vector<Range> ranges;
  std::function<void(Running&)> body;  // runs once for each replay of a graph
  std::shared_ptr<AbortFlag> abort;    // optional
};
// On the stream's thread behind all that is on it; into the graph if it is captured. A range that
// is no memory of the GPU is a violation and invalid value, and so is a stream that is none.
FAKE_GPU_EXPORT cu::Result enqueue(cu::Stream stream, Op op);
FAKE_GPU_EXPORT cu::CaptureStatus capture_status(cu::Stream stream);

// --- The calling thread

FAKE_GPU_EXPORT cu::Context current_context();  // null if there is none
FAKE_GPU_EXPORT int current_device();           // -1 if there is none
// Whether a capture forbids it a call that may synchronise. Breaks that capture, as the driver
// does.
FAKE_GPU_EXPORT bool is_forbidden_by_capture();
// Which clauses of the script it takes. Without: FAKE_GPU_RANK, RANK, or else the current device.
FAKE_GPU_EXPORT void set_rank(int rank);
FAKE_GPU_EXPORT int rank();
// A violation if the thread has the name of those that must never block.
FAKE_GPU_EXPORT void note_blocking_call(const char* function);

// --- The script (FAKE_GPU)

// For each call of a function, first of all: counts it, sleeps, hangs or ends the process as the
// script says, and returns what the call must return, or kNoFault. A hang ends when `abort` is
// raised; one "for ever" does not.
constexpr int kNoFault = -1;
FAKE_GPU_EXPORT int fault(const char* function, const AbortFlag* abort = nullptr);
// "seed = N", else 1. The same in all processes of a job.
FAKE_GPU_EXPORT std::uint64_t seed();

// --- The judge

// What must never happen. `kind` is one of few words, `detail` one sentence with names and numbers.
FAKE_GPU_EXPORT void violation(const char* kind, const std::string& detail);
// Asked when the process ends, for what it still holds, as "communicator" and how many.
using Leftovers = std::function<void(const std::function<void(const char* what, int count)>&)>;
FAKE_GPU_EXPORT void at_exit(Leftovers leftovers);

// --- Kernels

// One launch, of which the body runs all blocks and threads.
struct Launch {
  unsigned grid[3], block[3], shared_bytes;
  bool cooperative;
  void* const* parameters;  // the values, by their places in the kernel's list

  template <class T>
  const T& parameter(int place) const {
    return *static_cast<const T*>(parameters[place]);
  }
};
using KernelBody = void (*)(const Launch&, Running&);
struct Kernel {
  const char* name;
  std::vector<std::size_t> parameter_bytes;
  KernelBody body;
  int registers = 32;            // of a thread; with it the occupancy follows
  std::size_t shared_bytes = 0;  // static
};
// A module has a kernel if its image has the name and the stand-in has the body. Libraries with
// bodies are named in FAKE_GPU_KERNELS (a colon between them) and opened by cuInit.
FAKE_GPU_EXPORT void register_kernel(Kernel kernel);

#define FAKE_GPU_KERNEL(name, body, ...)                    \
  [[maybe_unused]] static const bool name##_is_registered = \
      (::fake_gpu::register_kernel(::fake_gpu::Kernel{#name, {__VA_ARGS__}, body}), true)

}  // namespace fake_gpu
