// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace c10d { inline namespace v0 { namespace parallel {

// CRC-32C (Castagnoli). crc32c("123456789") is 0xe3069283.
std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept;
inline std::uint32_t crc32c(std::string_view text) noexcept {
  return crc32c(std::as_bytes(std::span(text)));
}

}}}  // namespace c10d::v0::parallel
