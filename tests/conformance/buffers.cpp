// SPDX-License-Identifier: BSD-3-Clause
#include "tests/conformance/buffers.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace c10d::conformance {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::size_t kMaxShift = 64;

}  // namespace

std::size_t Buffers::needed(std::size_t bytes, std::size_t regions) {
  return bytes + regions * (2 * kGuard + kMaxShift + 64) + 64;
}

void Buffers::use_gpu(Device gpu) {
  gpu_ = gpu;
  stream_.emplace(gpu.index);
}

void Buffers::start(const Buffer<std::uint8_t>* allocated, std::size_t bytes) {
  if (stream_) {
    const bool fits = allocated != nullptr && bytes <= allocated->size();
    if (!fits && own_on_gpu_.size() < bytes)
      own_on_gpu_ = cuda::device_allocate<std::uint8_t>(bytes, gpu_.index);
    base_on_gpu_ = (fits ? *allocated : own_on_gpu_).device_data();
    allocated = nullptr;
  }
  if (allocated != nullptr && bytes <= allocated->size()) {
    base_ = reinterpret_cast<std::byte*>(allocated->data());
  } else {
    if (own_.size() < bytes) own_.resize(bytes);
    base_ = own_.data();
  }
  size_ = bytes;
  std::memset(base_, std::to_integer<int>(kPattern), size_);
  used_ = 0;
  guards_.clear();
}

std::byte* Buffers::take(std::size_t bytes, std::size_t shift) {
  std::size_t at = used_ + kGuard;
  at += (64 - (reinterpret_cast<std::uintptr_t>(base_) + at) % 64) % 64 + shift;
  if (at + bytes + kGuard > size_) throw std::length_error("a case takes more than it announced");
  guards_.push_back({used_, at});
  used_ = at + bytes;
  guards_.push_back({used_, used_ + kGuard});
  used_ += kGuard;
  return base_ + at;
}

View Buffers::view(std::byte* data, std::size_t count, DType dtype) const {
  if (!stream_) return {data, count, dtype};
  return {base_on_gpu_ + (data - base_), count, dtype, gpu_};
}

void Buffers::upload() const {
  if (!stream_) return;
  cuda::copy(View(base_on_gpu_, used_, DType::u8, gpu_), ConstView(base_, used_, DType::u8),
             *stream_);
}

void Buffers::download() const {
  if (!stream_) return;
  cuda::copy(View(base_, used_, DType::u8), ConstView(base_on_gpu_, used_, DType::u8, gpu_),
             *stream_);
  stream_->synchronize();
}

bool Buffers::intact() const {
  return std::ranges::all_of(guards_, [this](Range guard) {
    return std::all_of(base_ + guard.begin, base_ + guard.end,
                       [](std::byte b) { return b == kPattern; });
  });
}

}  // namespace c10d::conformance
