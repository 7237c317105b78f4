// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/error.h"
#include "c10d/store.h"

// What every store computes with: one request, one reply. docs/wire-format.md describes their
// bytes.
namespace c10d { inline namespace v0 {

// The values are those of the frame type on the wire.
enum class StoreOp : std::uint8_t {
  set = 1,
  get,
  try_get,
  add,
  compare_set,
  wait,
  check,
  append,
  multi_get,
  multi_set,
  delete_key,
  num_keys,
  push,
  pop,
  barrier
};
inline constexpr std::uint8_t kStoreOpCount = 15;
inline constexpr std::size_t kMaxItems = 1 << 16;  // keys or values in one request

std::string_view to_string(StoreOp op) noexcept;
bool is_mutation(StoreOp op) noexcept;
bool may_wait(StoreOp op) noexcept;

// Borrows its keys and values.
struct Request {
  StoreOp op = StoreOp::num_keys;
  std::int64_t number = 0;  // the amount of add, the size of barrier
  std::vector<std::string_view> keys;
  std::vector<std::string_view> values;  // compare_set: [expected,] desired
};

struct Reply {
  std::optional<Failure> failure;
  std::int64_t number = 0;  // the sum of add, the length of append, 0 or 1 of check and delete_key
  std::vector<std::string> values;  // compare_set and try_get: none = absent
};

Reply error_reply(Code code, std::string message);
// The answer to a request that waited in vain for these keys.
Reply timed_out(std::span<const std::string_view> missing);

// As a Reply with a failure, or nothing when the request has the shape of its op and fits the
// limits.
std::optional<Reply> refuse(const Request& request, const StoreLimits& limits);

// For messages: quoted, control characters visible, cut at 64 bytes.
std::string quoted(std::string_view key);

inline constexpr std::size_t kTimeoutBytes =
    8;  // a request starts with them, so that they can be renewed
void encode(Duration timeout, const Request& request, std::string& body);
std::size_t encoded_size(const Request& request) noexcept;
void encode(const Reply& reply, std::string& body);
// False when the bytes are no such thing. The request borrows from `body`.
bool decode(std::string_view body, Duration& timeout, Request& request);
bool decode(std::string_view body, Reply& reply);

// The longest body of a request or a reply under these limits.
std::size_t max_body_bytes(const StoreLimits& limits) noexcept;

}}  // namespace c10d::v0
