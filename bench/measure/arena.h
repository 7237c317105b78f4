// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "c10d/buffer.h"

namespace c10d::bench {

// Page-aligned memory whose pages are all there from the start, so that no timed copy faults.
class Arena {
 public:
  // Throws DistBackendError (out_of_resources).
  explicit Arena(std::size_t bytes);
  // What a group registered.
  explicit Arena(Buffer<std::uint8_t> memory)
      : bytes_(memory.size()), data_(memory.data()), registered_(std::move(memory)) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
  Buffer<std::uint8_t> registered_;
};

}  // namespace c10d::bench
