// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/nccl/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "c10d/cuda.h"
#include "src/backends/common/failures.h"
#include "src/backends/common/store_waits.h"
#include "src/backends/nccl/library.h"
#include "src/base/log.h"
#include "src/device/gpu.h"

namespace c10d { inline namespace v0 { namespace nccl {
namespace {

void zero(const Allocation& memory) {
  const cuda::Stream stream(memory.device.index);  // that waits for nothing else
  cuda::fill(View(memory.data, memory.bytes, DType::u8, memory.device), 0, stream);
  stream.synchronize();
}

}  // namespace

Allocation plain_memory(std::size_t bytes, Device device) {
  Allocation memory = cuda::device_allocate(bytes, device.index);
  zero(memory);
  return memory;
}

// Memory of ncclMemAlloc, perhaps in a window.
struct GroupMemory::Piece {
  explicit Piece(Device gpu) : device(gpu) {}
  // Nothing may use it any more: NCCL does not wait, as cudaFree does.
  ~Piece() {
    if (!data) return;
    try {
      const OnGpu here(device.index);
      check_driver(driver_api().ctx_synchronize(), "cuCtxSynchronize");
      if (close) check(close(), "ncclCommWindowDeregister");
      check(api().mem_free(data), "ncclMemFree");
    } catch (const std::exception& error) {
      log(LogLevel::warn, "memory of cuda:{} was not freed: {}", device.index, error.what());
    }
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  const Device device;
  void* data = nullptr;
  std::function<Result()> close;  // its window; null: it is in none
};

Allocation GroupMemory::allocate(std::size_t bytes, Deadline deadline) {
  const auto give_plain = [&](std::string_view why) {
    note(fmt::format("memory of CUDA: {}", why));
    return plain_memory(bytes, context_.device);
  };
  ++made_;
  if (!api().window_register)
    return give_plain(fmt::format("NCCL {} has no windows, 2.27 has", version_text(api().version)));
  if (bytes == 0) return plain_memory(bytes, context_.device);
  const auto piece = std::make_shared<Piece>(context_.device);
  std::string why;
  {
    const OnGpu here(context_.device.index);
    if (const Result result = api().mem_alloc(&piece->data, bytes); result != kSuccess) {
      piece->data = nullptr;
      why = "ncclMemAlloc: " + describe(result);
    }
  }
  if (!all_have("memory", why, deadline))
    return give_plain(why.empty() ? "another rank has none of NCCL" : why);
  auto opened = communicator_.open_window(piece, piece->data, bytes, *context_.control, deadline);
  piece->close = std::move(opened.close);
  if (!opened.result)
    why = "ncclCommWindowRegister waits for other ranks";
  else if (*opened.result != kSuccess)
    why = "ncclCommWindowRegister: " + describe(*opened.result);
  else if (!piece->close)
    why = "NCCL has no symmetric windows between these GPUs";
  if (!all_have("window", why, deadline))
    return give_plain(why.empty() ? "another rank has no window" : why);
  Allocation memory{.data = piece->data,
                    .bytes = bytes,
                    .owner = std::shared_ptr<void>(piece, piece->data),
                    .device = context_.device};
  zero(memory);
  note("symmetric windows");
  return memory;
}

bool GroupMemory::all_have(std::string_view what, const std::string& why, Deadline deadline) {
  // A rank that has failed does not leave the others waiting in NCCL.
  constexpr std::chrono::seconds kPatience{2};
  const std::string key = fmt::format("nccl/memory/{}/{}", made_, what);
  const std::string yes = key + "/yes";
  context_.store->add(yes, why.empty() ? 1 : 0);
  const Deadline patience = std::chrono::steady_clock::now() + kPatience;
  if (meet_at(context_, key, why.empty() ? deadline : std::min<Deadline>(deadline, patience)))
    return context_.store->add(yes, 0) == context_.size;
  Control& control = *context_.control;
  if (const auto failure = control.failure()) throw_failure(*failure);
  throw_failure(*control.fail(failure_in(
      context_, why.empty() ? Code::timed_out : Code::backend_error,
      fmt::format(
          "rank {}: allocate(): {}", context_.rank,
          why.empty() ? fmt::format("timed out waiting for the {} of other ranks", what) : why),
      why.empty() ? -1 : context_.rank)));
}

std::string GroupMemory::description() const {
  const MutexLock lock(mutex_);
  return what_.empty() ? std::string() : "; allocate(): " + what_;
}

void GroupMemory::note(std::string what) {
  const MutexLock lock(mutex_);
  what_ = std::move(what);
}

}}}  // namespace c10d::v0::nccl
