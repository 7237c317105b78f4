// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace nn {

using Shape = std::vector<std::int64_t>;  // outermost first; [0] of an activation counts samples

inline std::size_t count_of(const Shape& shape) noexcept {
  std::size_t product = 1;
  for (const std::int64_t extent : shape) product *= static_cast<std::size_t>(extent);
  return product;
}

// How the elements of an activation lie in memory: row by row, or in the blocks of channels that
// oneDNN's convolutions prefer on this CPU. Parameters always lie row by row.
struct Layout {
  struct Blocked;

  Shape shape;
  std::size_t floats = 0;                  // room that it takes, padding included
  std::shared_ptr<const Blocked> blocked;  // null: row by row

  static Layout plain(Shape shape) {
    const std::size_t floats = count_of(shape);
    return {std::move(shape), floats, nullptr};
  }
  std::int64_t samples() const noexcept { return shape[0]; }
  std::size_t per_sample() const noexcept {
    return shape[0] == 0 ? 0 : count_of(shape) / static_cast<std::size_t>(shape[0]);
  }
};

// Floats on a cache line boundary, zeroed when they are made.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count)
      : data_(static_cast<float*>(::operator new(count * sizeof(float), kAlign))), size_(count) {
    std::uninitialized_value_construct_n(data_.get(), count);
  }
  float* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(float* data) const noexcept { ::operator delete(data, kAlign); }
  };
  std::unique_ptr<float, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace nn
