// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

// Little-endian integers and length-prefixed strings: all that our wire formats are made of.
namespace c10d { inline namespace v0 {

template <std::unsigned_integral T>
void put(std::string& out, T value) {
  if constexpr (std::endian::native == std::endian::little) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out.append(bytes, sizeof(T));
  } else {
    for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
  }
}

inline void put_string(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  out.append(text);
}

// Takes values off the front. Once something was missing, ok() is false and all that follows is
// zero or empty.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) noexcept : rest_(bytes) {}

  template <std::unsigned_integral T>
  T take() noexcept {
    const std::string_view bytes = take_bytes(sizeof(T));
    if (!ok_) return 0;
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value = static_cast<T>(
          value | static_cast<T>(static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i)));
    return value;
  }
  std::string_view take_bytes(std::size_t count) noexcept {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  std::string_view take_string() noexcept { return take_bytes(take<std::uint32_t>()); }

  bool ok() const noexcept { return ok_; }
  std::size_t left() const noexcept { return rest_.size(); }
  // Everything was there and nothing is left over.
  bool finished() const noexcept { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}}  // namespace c10d::v0
