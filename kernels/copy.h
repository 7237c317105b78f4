// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace c10d::inline v0 {

// How results go to memory. `streaming` goes past the caches: what another core will read, or what
// is too large to stay, costs no read of the line that is overwritten. Its stores need a
// stream_fence() before the store that tells others of them.
enum class StorePolicy : std::uint8_t { temporal, streaming };

// The ranges do not overlap, or are the same.
void copy(std::byte* to, const std::byte* from, std::size_t bytes, StorePolicy policy) noexcept;
void stream_fence() noexcept;

}  // namespace c10d::inline v0
