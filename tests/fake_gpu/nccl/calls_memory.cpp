// SPDX-License-Identifier: BSD-3-Clause
// Memory, windows, and what needs no communicator.
#include <csignal>

#include "tests/fake_gpu/nccl/call.h"

namespace fake_nccl { namespace {

constexpr std::size_t kGranularity = 2 << 20;
constexpr std::size_t kWindowAlignment = 4096;

Result cuda_failure(const std::string& what) {
  return say(nccl::kUnhandledCudaError, "Cuda failure " + what);
}

void judge_memory(const char* function) {
  fake_gpu::note_blocking_call(function);
  for (const auto& comm : living()) {
    if (comm->device == fake_gpu::current_device() && comm->launched != 0 &&
        !comm->turns.are_over()) {
      fake_gpu::violation("memory during a collective",
                          std::string(function) + " was called while a collective was not done");
    }
  }
}

void judge_windows(const void* freed) {
  for (const auto& comm : living()) {
    const std::lock_guard lock(comm->opening);
    for (const auto& [window, memory] : comm->open) {
      if (memory != freed) continue;
      fake_gpu::violation("memory in a window", "ncclMemFree was called before its window closed");
    }
  }
}

// Whether a window may be there; the text says why not.
Result check_window(const void* at, int flags) {
  if (!fake_gpu::view(at, 1)) return cuda_failure("500 'named symbol not found'");
  if (flags != nccl::kWindowSymmetric) return nccl::kSuccess;
  const auto address = reinterpret_cast<cu::Pointer>(at);
  if (!fake_gpu::is_created(address)) return cuda_failure("1 'invalid argument'");
  if (address % kWindowAlignment != 0) {
    return say(nccl::kInvalidArgument, "Window address must be suitably aligned.");
  }
  return nccl::kSuccess;
}

const char* text_of(int result) {
  switch (result) {
    case 0:
      return "no error";
    case 1:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case 2:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case 3:
      return "internal error - please report this issue to the NCCL developers";
    case 4:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case 5:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case 6:
      return "remote process exited or there was a network error";
    case 7:
      return "NCCL operation in progress";
    case 8:
      return kVersion >= 23000 ? "operation timed out" : "unknown result code";
    default:
      return "unknown result code";
  }
}

}}  // namespace fake_nccl

using namespace fake_nccl;  // NOLINT: the file has nothing else

FAKE_NCCL_API Result ncclMemAlloc(void** made, std::size_t bytes) {
  FAKE_NCCL_ENTER(nullptr);
  if (!made) return cuda_failure("1 'invalid argument'");
  *made = nullptr;
  if (bytes == 0) return nccl::kSuccess;
  judge_memory(__func__);
  if (bytes > std::size_t{1} << 50) return cuda_failure("2 'out of memory'");
  const std::size_t whole = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  cu::Pointer at = 0;
  const cu::Result result = fake_gpu::create_memory(__func__, whole, at);
  if (result != cu::kSuccess) return cuda_failure(std::to_string(result));
  *made = reinterpret_cast<void*>(at);
  return nccl::kSuccess;
}

FAKE_NCCL_API Result ncclMemFree(void* at) {
  FAKE_NCCL_ENTER(nullptr);
  if (!at) return nccl::kSuccess;
  judge_memory(__func__);
  judge_windows(at);
  const cu::Result result = fake_gpu::release_memory(__func__, reinterpret_cast<cu::Pointer>(at));
  return result == cu::kSuccess ? nccl::kSuccess : cuda_failure(std::to_string(result));
}

FAKE_NCCL_API Result ncclCommRegister(nccl::Comm handle, void* at, std::size_t bytes, void** made) {
  const auto comm = find(handle, __func__);
  FAKE_NCCL_ENTER(comm.get());
  if (!comm) return no_comm(__func__);
  comm->registered[at] = bytes;
  if (made) *made = at;
  return nccl::kSuccess;
}

FAKE_NCCL_API Result ncclCommDeregister(nccl::Comm handle, void* registered) {
  const auto comm = find(handle, __func__);
  FAKE_NCCL_ENTER(comm.get());
  if (!comm) return no_comm(__func__);
  if (!registered) return nccl::kSuccess;
  if (comm->registered.erase(registered) != 0) return nccl::kSuccess;
  return say(nccl::kInvalidUsage, "Deregister: Could not find handle");
}

FAKE_NCCL_API Result ncclCommWindowRegister(nccl::Comm handle, void* at, std::size_t,
                                            nccl::Window* made, int flags) {
  const auto comm = find(handle, __func__);
  FAKE_NCCL_ENTER(comm.get());
  if (!comm) raise(SIGSEGV);  // as NCCL, which follows the null pointer
  judge_management(__func__);
  if (const Result not_ready = comm->ready(false); not_ready != nccl::kSuccess) return not_ready;
  if (!made) return nccl::kInvalidArgument;
  *made = nullptr;
  const std::uint64_t number = ++comm->windows;
  comm->begin(
      [=, weak = std::weak_ptr<Comm>(comm)]() -> Result {
        const auto mine = weak.lock();
        if (const Result wrong = check_window(at, flags); wrong != nccl::kSuccess) return wrong;
        mine->board->member(mine->rank).windows.store(number, std::memory_order_release);
        for (int rank = 0; rank < mine->size; ++rank) {
          if (mine->board->member(rank).windows.load(std::memory_order_acquire) >= number) continue;
          return mine->board->is_gone(rank) ? nccl::kRemoteError : nccl::kInProgress;
        }
        static std::atomic<std::uintptr_t> last{0x70000000};
        *made = reinterpret_cast<nccl::Window>(last += 16);
        const std::lock_guard lock(mine->opening);
        mine->open[*made] = at;
        return nccl::kSuccess;
      },
      2);
  const Result result = submit(comm);
  return result == nccl::kInProgress ? nccl::kSuccess : result;
}

FAKE_NCCL_API Result ncclCommWindowDeregister(nccl::Comm handle, nccl::Window window) {
  const auto comm = find(handle, __func__);
  FAKE_NCCL_ENTER(comm.get());
  if (!comm) return nccl::kSuccess;
  const std::lock_guard lock(comm->opening);
  comm->open.erase(window);
  return nccl::kSuccess;
}

FAKE_NCCL_API Result ncclGetVersion(int* version) {
  FAKE_NCCL_ENTER(nullptr);
  if (!version) return nccl::kInvalidArgument;
  *version = kVersion;
  return nccl::kSuccess;
}

// A code from the script becomes its text.
FAKE_NCCL_API const char* ncclGetErrorString(Result result) {
  const int code = fake_gpu::fault(__func__);
  return text_of(code == fake_gpu::kNoFault ? result : code);
}

FAKE_NCCL_API const char* ncclGetLastError(nccl::Comm) {
  const int code = fake_gpu::fault(__func__);
  return code == fake_gpu::kNoFault ? last_error() : text_of(code);
}
