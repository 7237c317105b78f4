// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace c10d { inline namespace v0 {

// How results go to memory. `streaming` goes past the caches: what another core will read, or what
// is too large to stay, costs no read of the line that is overwritten. Its stores need a
// stream_fence() before the store that tells others of them.
enum class StorePolicy : std::uint8_t { temporal, streaming };

// The ranges do not overlap, or are the same.
void copy(std::byte* to, const std::byte* from, std::size_t bytes, StorePolicy policy) noexcept;
void stream_fence() noexcept;

struct Copying {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
};
// Streams `taken` and `kept`, and copies `refill` to where `taken` comes from, behind the loop that
// has read it: while lines of one come from another core, those of the others come from memory.
// Lengths may differ.
void copy_and_refill(const Copying& taken, const Copying& refill, const Copying& kept) noexcept;

}}  // namespace c10d::v0
