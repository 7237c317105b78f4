// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/memory/layout.h"

#include <algorithm>
#include <bit>

namespace c10d { inline namespace v0 { namespace native {
namespace {

// A quarter of it is a chunk that stays in a core's L2 cache while it is copied and reduced.
constexpr std::size_t kHalfBytes = std::size_t{512} << 10;
// A rank's rings together, whatever the number of peers, within limits for one ring.
constexpr std::size_t kRingsBytes = std::size_t{512} << 10;
constexpr std::size_t kSmallestRing = std::size_t{8} << 10;
constexpr std::size_t kLargestRing = std::size_t{256} << 10;
constexpr std::size_t kPage = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Layout::Layout(int size) noexcept
    : size_(static_cast<std::size_t>(size)),
      half_bytes_(size == 1 ? 0 : kHalfBytes),
      ring_bytes_(std::clamp(std::bit_floor(kRingsBytes / size_), kSmallestRing, kLargestRing)) {
  lines_ = round_up(sizeof(PlanLines), alignof(RankLines));
  counts_ = lines_ + size_ * sizeof(RankLines);
  channels_ = round_up(counts_ + size_ * 4 * size_ * sizeof(std::uint64_t), alignof(ChannelLines));
  staging_ = round_up(channels_ + size_ * size_ * sizeof(ChannelLines), kPage);
  rings_ = round_up(staging_ + size_ * staging_bytes(), kPage);
  bytes_ = rings_ + size_ * size_ * ring_bytes_;
}

PlanLines& Layout::plan(std::byte* base) const noexcept {
  return *reinterpret_cast<PlanLines*>(base);
}

std::uint64_t* Layout::counts(std::byte* base, int rank, unsigned parity) const noexcept {
  const std::size_t row = static_cast<std::size_t>(rank) * 2 + parity;
  return reinterpret_cast<std::uint64_t*>(base + counts_) + row * 2 * size_;
}

ChannelLines& Layout::channel(std::byte* base, int from, int to) const noexcept {
  const std::size_t index = static_cast<std::size_t>(from) * size_ + static_cast<std::size_t>(to);
  return reinterpret_cast<ChannelLines*>(base + channels_)[index];
}

std::byte* Layout::ring(std::byte* base, int from, int to) const noexcept {
  const std::size_t index = static_cast<std::size_t>(from) * size_ + static_cast<std::size_t>(to);
  return base + rings_ + index * ring_bytes_;
}

std::byte* Layout::staging(std::byte* base, int rank, unsigned parity) const noexcept {
  return base + staging_ + (static_cast<std::size_t>(rank) * 2 + parity) * half_bytes_;
}

}}}  // namespace c10d::v0::native
