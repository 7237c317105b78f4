// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace c10d { inline namespace v0 {

// CRC-32C (Castagnoli) of `data` behind bytes whose CRC is `before`; that of no bytes is 0. So
// crc32c(crc32c(0, a), b) is that of a and b together, in whatever parts they come, and
// crc32c(0, "123456789") is 0xe3069283. `data` needs no alignment.
std::uint32_t crc32c(std::uint32_t before, const void* data, std::size_t bytes) noexcept;

// The ways of this build that the CPU can run, slowest first: by tables, by an instruction for it,
// by carry-less multiplication. All give the same; crc32c() takes the last.
using Crc32c = std::uint32_t(std::uint32_t before, const void* data, std::size_t bytes) noexcept;
std::span<Crc32c* const> crc32c_ways() noexcept;

}}  // namespace c10d::v0
