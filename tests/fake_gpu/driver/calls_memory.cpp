// SPDX-License-Identifier: BSD-3-Clause
// Memory of the device, pinned memory, memory of other processes.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/fake_gpu/driver/script.h"
#include "tests/fake_gpu/driver/stream.h"

namespace fake_gpu {
namespace {

// As the driver does: behind all that the device has to do.
cu::Result release(const std::shared_ptr<Block>& block, const char* function) {
  Context& context = *context_of_device(block->device);
  if (const auto refused = refusal(context)) return *refused;
  check_uses(*block, function);
  const cu::Result result = synchronize(context);
  if (result == cu::kSuccess) forget(block);
  return result;
}

}  // namespace

cu::Result create_memory(const char* function, std::size_t bytes, cu::Pointer& at) {
  if (const auto refused = check_state(function, kNeedsContext)) return *refused;
  const std::shared_ptr<Block> block = allocate(current_device(), bytes, Kind::created);
  if (!block) return cu::kOutOfMemory;
  at = block->at;
  return cu::kSuccess;
}

cu::Result release_memory(const char* function, cu::Pointer at) {
  const std::shared_ptr<Block> block = block_at(at);
  if (!block || block->kind != Kind::created || block->at != at) return cu::kInvalidValue;
  return release(block, function);
}

bool is_created(cu::Pointer at) {
  const std::shared_ptr<Block> block = block_at(at);
  return block && block->kind == Kind::created;
}

FAKE_GPU_API cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  FAKE_GPU_ENTER(kNeedsContext);
  if (!free || !total) return cu::kInvalidValue;
  *total = script().memory;
  *free = *total - std::min<std::uint64_t>(*total, used_memory(current_device()));
  return cu::kSuccess;
}

FAKE_GPU_API cuMemAlloc_v2(cu::Pointer* pointer, std::size_t bytes) {
  FAKE_GPU_ENTER(kNeedsContext | kMayBlock | kUnsafeInCapture);
  if (!pointer || bytes == 0) return cu::kInvalidValue;
  const std::shared_ptr<Block> block = allocate(current_device(), bytes);
  *pointer = block ? block->at : 0;
  return block ? cu::kSuccess : cu::kOutOfMemory;
}

FAKE_GPU_API cuMemFree_v2(cu::Pointer pointer) {
  FAKE_GPU_ENTER(kNeedsInit | kMayBlock | kUnsafeInCapture);
  if (pointer == 0) return cu::kSuccess;
  const std::shared_ptr<Block> block = block_at(pointer);
  if (!block || block->kind != Kind::device || block->at != pointer) {
    if (was_freed(pointer)) violation("used after free", "cuMemFree_v2 of freed memory");
    return cu::kInvalidValue;
  }
  return release(block, __func__);
}

FAKE_GPU_API cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  FAKE_GPU_ENTER(kNeedsContext | kMayBlock | kUnsafeInCapture);
  if (!pointer || bytes == 0 || flags > 7) return cu::kInvalidValue;
  const std::shared_ptr<Block> block = allocate_pinned(current_device(), bytes);
  if (!block) return cu::kOutOfMemory;
  *pointer = block->shadow;
  return cu::kSuccess;
}

FAKE_GPU_API cuMemFreeHost(void* pointer) {
  FAKE_GPU_ENTER(kNeedsInit | kMayBlock | kUnsafeInCapture);
  if (!pointer) return cu::kSuccess;
  const std::shared_ptr<Block> block = block_at(reinterpret_cast<cu::Pointer>(pointer));
  if (!block || block->kind != Kind::pinned || block->shadow != pointer) return cu::kInvalidValue;
  return release(block, __func__);
}

FAKE_GPU_API cuMemHostGetDevicePointer_v2(cu::Pointer* pointer, void* host, unsigned flags) {
  FAKE_GPU_ENTER(kNeedsContext);
  const std::shared_ptr<Block> block = block_at(reinterpret_cast<cu::Pointer>(host));
  if (!pointer || flags != 0 || !block || block->kind != Kind::pinned) return cu::kInvalidValue;
  *pointer = reinterpret_cast<cu::Pointer>(host);
  return cu::kSuccess;
}

FAKE_GPU_API cuIpcGetMemHandle(cu::IpcMemory* handle, cu::Pointer pointer) {
  FAKE_GPU_ENTER(0);
  if (!handle || pointer == 0) return cu::kInvalidValue;
  FAKE_GPU_CHECK(kNeedsContext);
  Shared shared;
  if (!share(pointer, shared)) return cu::kInvalidValue;
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle->reserved, &shared, sizeof shared);
  return cu::kSuccess;
}

FAKE_GPU_API cuIpcOpenMemHandle_v2(cu::Pointer* pointer, cu::IpcMemory handle, unsigned flags) {
  FAKE_GPU_ENTER(kNeedsContext | kMayBlock | kUnsafeInCapture);
  if (!pointer || flags != cu::kIpcLazyEnablePeerAccess) return cu::kInvalidValue;
  Shared shared;
  std::memcpy(&shared, handle.reserved, sizeof shared);
  if (shared.pid == getpid()) return cu::kInvalidContext;
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Block> block = open_block(current_device(), shared, why);
  if (!block) return why;
  *pointer = block->at;
  return cu::kSuccess;
}

FAKE_GPU_API cuIpcCloseMemHandle(cu::Pointer pointer) {
  FAKE_GPU_ENTER(kNeedsContext | kMayBlock | kUnsafeInCapture);
  const std::shared_ptr<Block> block = block_at(pointer);
  if (!block || block->kind != Kind::opened || block->at != pointer) return cu::kInvalidValue;
  check_uses(*block, __func__);
  forget(block);
  return cu::kSuccess;
}

}  // namespace fake_gpu
