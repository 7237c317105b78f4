// SPDX-License-Identifier: BSD-3-Clause
// Copies, fills, and what is told of an address.
#include <cstring>

#include "tests/fake_gpu/driver/capture.h"

namespace fake_gpu {
namespace {

// Up to here a copy from pageable memory has taken its bytes when it returns.
constexpr std::size_t kStaged = std::size_t{64} << 10;

bool is_known(const void* host) { return block_at(reinterpret_cast<cu::Pointer>(host)) != nullptr; }

// Of a copy between a device and memory of the host, which the driver may know.
cu::Result copy(const char* name, cu::Stream handle, cu::Pointer device, const void* host,
                std::size_t bytes, bool to_device) {
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Stream> stream = stream_of(handle, why);
  if (!stream) return why;
  if (bytes == 0) return cu::kSuccess;
  if (!host) return cu::kInvalidValue;
  const bool pinned = is_known(host);
  const bool captured = capture_status(*stream) != cu::kCaptureNone;
  Op op;
  op.name = name;
  op.ranges.push_back({device, bytes});
  if (pinned) op.ranges.push_back({reinterpret_cast<cu::Pointer>(host), bytes});
  std::shared_ptr<std::vector<char>> staged;
  if (to_device && !pinned && !captured && bytes <= kStaged) {
    const auto* const from = static_cast<const char*>(host);
    staged = std::make_shared<std::vector<char>>(from, from + bytes);
  }
  op.body = [=](Running& running) {
    std::byte* const there = view(device, bytes);
    const void* here = pinned ? view(host, bytes) : host;
    if (staged) here = staged->data();
    if (!there || !here) return running.fail(cu::kIllegalAddress);
    if (to_device) {
      std::memcpy(there, here, bytes);
    } else {
      std::memcpy(const_cast<void*>(here), there, bytes);
    }
  };
  const cu::Result result = submit(*stream, std::move(op));
  if (result != cu::kSuccess || pinned || captured || staged) return result;
  // Pageable memory: the call is over when the copy is.
  note_blocking_call(name);
  for (const Mark& mark : work_of(*stream)) mark.wait(*stream->context);
  return static_cast<cu::Result>(stream->context->broken.load());
}

}  // namespace

FAKE_GPU_API cuMemcpyHtoDAsync_v2(cu::Pointer to, const void* from, std::size_t bytes,
                                  cu::Stream stream) {
  FAKE_GPU_ENTER(kNeedsInit);
  return copy(__func__, stream, to, from, bytes, true);
}

FAKE_GPU_API cuMemcpyDtoHAsync_v2(void* to, cu::Pointer from, std::size_t bytes,
                                  cu::Stream stream) {
  FAKE_GPU_ENTER(kNeedsInit);
  return copy(__func__, stream, from, to, bytes, false);
}

// Synchronous copies are on the legacy stream; the library does not call them, tests do.
FAKE_GPU_API cuMemcpyHtoD_v2(cu::Pointer to, const void* from, std::size_t bytes) {
  FAKE_GPU_ENTER(kNeedsContext | kMayBlock);
  const cu::Result result = copy(__func__, nullptr, to, from, bytes, true);
  if (result != cu::kSuccess) return result;
  for (const Mark& mark : work_of(*current()->legacy)) mark.wait(*current());
  return static_cast<cu::Result>(current()->broken.load());
}

FAKE_GPU_API cuMemcpyDtoH_v2(void* to, cu::Pointer from, std::size_t bytes) {
  FAKE_GPU_ENTER(kNeedsContext | kMayBlock);
  const cu::Result result = copy(__func__, nullptr, from, to, bytes, false);
  if (result != cu::kSuccess) return result;
  for (const Mark& mark : work_of(*current()->legacy)) mark.wait(*current());
  return static_cast<cu::Result>(current()->broken.load());
}

FAKE_GPU_API cuMemcpyDtoDAsync_v2(cu::Pointer to, cu::Pointer from, std::size_t bytes,
                                  cu::Stream handle) {
  FAKE_GPU_ENTER(kNeedsInit | kWorksInHostFunction);
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Stream> stream = stream_of(handle, why);
  if (!stream) return why;
  if (bytes == 0) return cu::kSuccess;
  Op op;
  op.name = __func__;
  op.ranges = {{to, bytes}, {from, bytes}};
  op.body = [=](Running& running) {
    std::byte *const target = view(to, bytes), *const source = view(from, bytes);
    if (!target || !source) return running.fail(cu::kIllegalAddress);
    std::memmove(target, source, bytes);
  };
  return submit(*stream, std::move(op));
}

FAKE_GPU_API cuMemsetD8Async(cu::Pointer to, unsigned char value, std::size_t bytes,
                             cu::Stream handle) {
  FAKE_GPU_ENTER(kNeedsInit | kWorksInHostFunction);
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Stream> stream = stream_of(handle, why);
  if (!stream) return why;
  if (bytes == 0) return cu::kSuccess;
  Op op;
  op.name = __func__;
  op.ranges = {{to, bytes}};
  op.body = [=](Running& running) {
    std::byte* const target = view(to, bytes);
    if (!target) return running.fail(cu::kIllegalAddress);
    std::memset(target, value, bytes);
  };
  return submit(*stream, std::move(op));
}

// Memory that the driver does not know is no error: its type is 0, its device -2, and the range
// stays as it was.
FAKE_GPU_API cuPointerGetAttributes(unsigned count, cu::PointerAttribute* which, void** values,
                                    cu::Pointer pointer) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (count == 0 || !which || !values) return cu::kInvalidValue;
  const std::shared_ptr<Block> block = block_at(pointer);
  for (unsigned i = 0; i < count; ++i) {
    void* const value = values[i];
    switch (static_cast<int>(which[i])) {
      case cu::kPointerContext:
        *static_cast<cu::Context*>(value) =
            block ? context_of_device(block->device)->handle() : nullptr;
        break;
      case cu::kPointerMemoryType:
        *static_cast<unsigned*>(value) = !block ? 0
                                         : block->kind == Kind::pinned
                                             ? unsigned{cu::kHostMemory}
                                             : unsigned{cu::kDeviceMemory};
        break;
      case 4:  // the address for the host
        *static_cast<void**>(value) =
            !block || block->kind == Kind::pinned ? reinterpret_cast<void*>(pointer) : nullptr;
        break;
      case cu::kPointerIsManaged:
        *static_cast<unsigned*>(value) = 0;
        break;
      case cu::kPointerDeviceOrdinal:
        *static_cast<int*>(value) = block ? block->device : -2;
        break;
      case cu::kPointerRangeStart:
        if (block) *static_cast<cu::Pointer*>(value) = block->at;
        break;
      case cu::kPointerRangeSize:
        if (block) *static_cast<std::size_t*>(value) = block->bytes;
        break;
      default:
        return cu::kInvalidValue;
    }
  }
  return cu::kSuccess;
}

}  // namespace fake_gpu
