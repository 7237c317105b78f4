// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace c10d { inline namespace v0 {

// Hashes of 64 bits, the same on every host and in every build: ranks compare them, files are named
// after them. Nothing here withstands an attacker.

inline constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325u;

// FNV-1a, byte by byte. To hash data in parts, pass the hash of the parts before as `hash`.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t hash = kFnvStart) noexcept {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// `hash` with one more word.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

// Hashes a buffer word by word: faster than fnv1a for long buffers.
inline std::uint64_t hash_bytes(std::span<const std::byte> bytes) noexcept {
  std::uint64_t hash = kFnvStart ^ bytes.size();
  for (; bytes.size() >= sizeof hash; bytes = bytes.subspan(sizeof hash)) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    hash = mix(hash, word);
  }
  for (const std::byte byte : bytes) hash = mix(hash, std::to_integer<std::uint64_t>(byte));
  return hash;
}

}}  // namespace c10d::v0
