// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace c10d { inline namespace v0 { namespace parallel {

// Philox4x32-10 (Salmon et al., 2011): a pure function of counter and key, so that randomness has
// no state that could depend on the number of ranks or threads.
using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint64_t key) noexcept {
  auto low = static_cast<std::uint32_t>(key);
  auto high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ low, static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ high, static_cast<std::uint32_t>(a)};
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return counter;
}

// The random numbers of one layer for one sample of one step: the same wherever that sample is
// computed. `sample` is the index in the data set, or in the global batch, never in a rank's part.
// 2^34 draws. Cheap to make; not for two threads at once.
class PhiloxStream {
 public:
  constexpr PhiloxStream(std::uint64_t seed, std::uint64_t step, std::uint64_t sample,
                         std::uint32_t layer) noexcept
      : key_(key_of(seed, step)),
        counter_{0, layer, static_cast<std::uint32_t>(sample),
                 static_cast<std::uint32_t>(sample >> 32)} {}

  constexpr std::uint32_t next() noexcept {
    if (used_ == 4) {
      block_ = philox4x32(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }
  constexpr std::uint64_t next64() noexcept {
    const std::uint64_t high = next();
    return high << 32 | next();
  }
  // In [0, 1), a multiple of 2^-24.
  constexpr float uniform() noexcept { return static_cast<float>(next() >> 8) * 0x1p-24f; }
  // In [0, bound), without bias; bound > 0.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    const std::uint64_t unfair = (0 - bound) % bound;  // 2^64 mod bound
    std::uint64_t draw = next64();
    while (draw < unfair) draw = next64();
    return draw % bound;
  }

 private:
  static constexpr std::uint64_t key_of(std::uint64_t seed, std::uint64_t step) noexcept {
    const PhiloxBlock mixed = philox4x32(
        {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32), 0, 0}, seed);
    return std::uint64_t{mixed[1]} << 32 | mixed[0];
  }

  std::uint64_t key_;
  PhiloxBlock counter_;
  PhiloxBlock block_{};
  std::size_t used_ = 4;
};

}}}  // namespace c10d::v0::parallel
