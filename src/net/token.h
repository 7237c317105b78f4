// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

inline constexpr std::size_t kLeastTokenBytes = 16;
inline constexpr std::size_t kMostTokenBytes = 1024;

inline constexpr std::size_t kDigestBytes = 32;
inline constexpr std::size_t kNonceBytes = 32;

// HMAC-SHA256 of `message` under `key`, 32 bytes. An empty key is a key that everybody knows.
C10D_API std::string hmac_sha256(std::string_view key, std::string_view message);

// Takes the same time wherever the two differ.
C10D_API bool equal_secrets(std::string_view a, std::string_view b) noexcept;

// From the kernel. Throws DistBackendError (out_of_resources).
C10D_API std::string random_bytes(std::size_t count);

C10D_API std::string to_hex(std::string_view bytes);

}}  // namespace c10d::v0
