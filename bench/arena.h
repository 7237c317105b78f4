// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace c10d::bench {

// Page-aligned memory whose pages are all there from the start, so that no timed copy faults.
class Arena {
 public:
  // Throws DistBackendError (out_of_resources).
  explicit Arena(std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace c10d::bench
