// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/fsdp/bf16_in_place.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/convert.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

// Through copies of so many elements: compilers vectorize what shares no memory.
constexpr std::size_t kNarrowChunk = 1024;

}  // namespace

Tensor narrow_in_place(const Tensor& values) {
  std::array<float, kNarrowChunk> wide{};
  std::array<BFloat16, kNarrowChunk> halves{};
  auto* const bytes = static_cast<std::byte*>(values.data);
  for (std::size_t at = 0; at < values.count; at += kNarrowChunk) {
    const std::size_t count = std::min(kNarrowChunk, values.count - at);
    std::memcpy(wide.data(), bytes + at * sizeof(float), count * sizeof(float));
    std::transform(wide.begin(), wide.end(), halves.begin(),
                   [](float value) { return to_bfloat16(value); });
    std::memcpy(bytes + at * sizeof(BFloat16), halves.data(), count * sizeof(BFloat16));
  }
  return {values.data, values.count, DType::bf16};
}

void widen_in_place(const ConstTensor& from, const Tensor& to) {
  std::array<float, kNarrowChunk> wide{};
  std::array<BFloat16, kNarrowChunk> halves{};
  const auto* const source = static_cast<const std::byte*>(from.data);
  auto* const target = static_cast<std::byte*>(to.data);
  // From the end: what is written lies behind what is still to be read.
  for (std::size_t end = from.count; end > 0;) {
    const std::size_t count = std::min(kNarrowChunk, end);
    end -= count;
    std::memcpy(halves.data(), source + end * sizeof(BFloat16), count * sizeof(BFloat16));
    std::transform(halves.begin(), halves.end(), wide.begin(),
                   [](BFloat16 value) { return to_float(value); });
    std::memcpy(target + end * sizeof(float), wide.data(), count * sizeof(float));
  }
}

}}}  // namespace c10d::v0::parallel
