// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

namespace c10d { inline namespace v0 {

// Memory that an op needs beside its tensors, kept from op to op up to a limit.
class Scratch {
 public:
  std::byte* take(std::size_t bytes) {
    if (bytes > size_) {
      free();
      data_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      size_ = bytes;
    }
    return data_.get();
  }
  // At the end of each op.
  void release() {
    if (size_ > kKeptBytes) free();
  }

 private:
  static constexpr std::size_t kKeptBytes = std::size_t{64} << 20;

  void free() {
    data_.reset();
    size_ = 0;
  }

  std::unique_ptr<std::byte[]> data_;
  std::size_t size_ = 0;
};

}}  // namespace c10d::v0
