// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/crc32c.h"

namespace c10d { inline namespace v0 { namespace parallel {

inline std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  return v0::crc32c(0, bytes.data(), bytes.size());
}
inline std::uint32_t crc32c(std::string_view text) noexcept {
  return v0::crc32c(0, text.data(), text.size());
}

}}}  // namespace c10d::v0::parallel
