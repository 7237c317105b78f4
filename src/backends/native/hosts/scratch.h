// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "c10d/element.h"

namespace c10d { inline namespace v0 { namespace native {

// Memory that an op needs beside its buffers. It lasts until the end of the op, and is kept for the
// next one up to a limit.
class Scratch {
 public:
  // At a cache line.
  std::byte* take(std::size_t count, DType dtype) { return take(count * size_of(dtype)); }
  std::byte* take(std::size_t bytes) {
    const std::size_t wanted = (bytes + kLine - 1) / kLine * kLine;
    if (wanted > left_) add(std::max(wanted, kLeast));
    std::byte* const taken = next_;
    next_ += wanted;
    left_ -= wanted;
    used_ += wanted;
    return taken;
  }
  // Ends what was taken. One block serves an op like this one next time.
  void reset() {
    if (blocks_.size() > 1 || size_ > kKept) {
      blocks_.clear();
      size_ = 0;
      if (used_ <= kKept) add(used_);
    }
    used_ = 0;
    next_ = blocks_.empty() ? nullptr : aligned(blocks_.back().get());
    left_ = size_;
  }

 private:
  static constexpr std::size_t kLine = 64, kLeast = std::size_t{64} << 10;
  static constexpr std::size_t kKept = std::size_t{64} << 20;

  static std::byte* aligned(std::byte* at) {
    void* place = at;
    std::size_t space = 2 * kLine;
    return static_cast<std::byte*>(std::align(kLine, kLine, place, space));
  }
  void add(std::size_t bytes) {
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes + kLine));
    next_ = aligned(blocks_.back().get());
    left_ = size_ = bytes;
  }

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
  std::size_t size_ = 0;  // of the last block
  std::size_t used_ = 0;  // since the last reset(), in all blocks
};

}}}  // namespace c10d::v0::native
