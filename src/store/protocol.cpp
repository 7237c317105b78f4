// SPDX-License-Identifier: BSD-3-Clause
#include "src/store/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "c10d/init.h"
#include "src/net/bytes.h"
#include "src/net/frame.h"

namespace c10d { inline namespace v0 {

namespace {

static_assert(kMaxItems >= kMaxWorldSize, "ranks meet by one request with a key of each");

constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();

struct Shape {
  std::string_view name;
  std::size_t min_keys, max_keys, min_values, max_values;
  bool mutation, waits;
};

// By StoreOp, from 1 on.
constexpr Shape kShapes[kStoreOpCount] = {
    {"set", 1, 1, 1, 1, true, false},          {"get", 1, 1, 0, 0, false, true},
    {"try_get", 1, 1, 0, 0, false, false},     {"add", 1, 1, 0, 0, true, false},
    {"compare_set", 1, 1, 1, 2, true, false},  {"wait", 0, kAny, 0, 0, false, true},
    {"check", 0, kAny, 0, 0, false, false},    {"append", 1, 1, 1, 1, true, false},
    {"multi_get", 0, kAny, 0, 0, false, true}, {"multi_set", 0, kAny, 0, kAny, true, false},
    {"delete_key", 1, 1, 0, 0, true, false},   {"num_keys", 0, 0, 0, 0, false, false},
    {"push", 1, 1, 1, 1, true, false},         {"pop", 1, 1, 0, 0, true, true},
    {"barrier", 1, 1, 0, 0, true, true},
};

const Shape& shape_of(StoreOp op) noexcept { return kShapes[static_cast<std::uint8_t>(op) - 1]; }

bool read_items(ByteReader& reader, std::size_t count, std::vector<std::string_view>& items) {
  // Every item takes at least its length field: a count that cannot be true reserves nothing.
  if (count > kMaxItems || count > reader.left() / 4) return false;
  items.reserve(count);
  for (std::size_t i = 0; i < count; ++i) items.push_back(reader.take_string());
  return reader.ok();
}

}  // namespace

std::string_view to_string(StoreOp op) noexcept { return shape_of(op).name; }
bool is_mutation(StoreOp op) noexcept { return shape_of(op).mutation; }
bool may_wait(StoreOp op) noexcept { return shape_of(op).waits; }

std::string quoted(std::string_view key) {
  constexpr std::size_t kShown = 64;
  std::string text = "'";
  for (const char c : key.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      text += fmt::format("\\x{:02x}", byte);
    else
      text += c;
  }
  return text + (key.size() > kShown ? "...'" : "'");
}

Reply error_reply(Code code, std::string message) {
  Reply reply;
  reply.failure = Failure{.code = code, .message = std::move(message)};
  return reply;
}

Reply timed_out(std::span<const std::string_view> missing) {
  constexpr std::size_t kNamed = 16;
  std::string names;
  for (std::size_t i = 0; i < std::min(missing.size(), kNamed); ++i)
    names += (i == 0 ? "" : ", ") + quoted(missing[i]);
  if (missing.size() > kNamed) names += fmt::format(" and {} more", missing.size() - kNamed);
  return error_reply(Code::timed_out,
                     fmt::format("the deadline passed before {} {}", names,
                                 missing.size() == 1 ? "was there" : "were there"));
}

std::optional<Reply> refuse(const Request& request, const StoreLimits& limits) {
  const Shape& shape = shape_of(request.op);
  const auto too_much = [&](std::string_view what, std::size_t is, std::size_t limit,
                            std::string_view name) {
    return error_reply(Code::store_limit,
                       fmt::format("{} of {} exceeds the limit of {} ({})", what, is, limit, name));
  };
  if (request.keys.size() > kMaxItems)
    return too_much("a request for a number of keys", request.keys.size(), kMaxItems,
                    "keys in one request");
  const bool paired =
      request.op != StoreOp::multi_set || request.keys.size() == request.values.size();
  if (request.keys.size() < shape.min_keys || request.keys.size() > shape.max_keys ||
      request.values.size() < shape.min_values || request.values.size() > shape.max_values ||
      !paired || (request.op == StoreOp::barrier && request.number < 1))
    return error_reply(
        Code::store_error,
        fmt::format("{} with {} keys, {} values and the number {} makes no sense", shape.name,
                    request.keys.size(), request.values.size(), request.number));
  for (const std::string_view key : request.keys)
    if (key.size() > limits.key_bytes)
      return too_much(fmt::format("the key {} with a length", quoted(key)), key.size(),
                      limits.key_bytes, "StoreLimits::key_bytes");
  for (const std::string_view value : request.values)
    if (value.size() > limits.value_bytes)
      return too_much("a value with a length", value.size(), limits.value_bytes,
                      "StoreLimits::value_bytes");
  if (encoded_size(request) > max_body_bytes(limits))
    return too_much("a request with a length", encoded_size(request), max_body_bytes(limits),
                    "one frame, see StoreLimits::output_queue_bytes; give fewer keys at a time");
  return {};
}

void encode(Duration timeout, const Request& request, std::string& body) {
  put(body, static_cast<std::uint64_t>(timeout.count()));
  put(body, static_cast<std::uint64_t>(request.number));
  put(body, static_cast<std::uint32_t>(request.keys.size()));
  put(body, static_cast<std::uint32_t>(request.values.size()));
  for (const std::string_view key : request.keys) put_string(body, key);
  for (const std::string_view value : request.values) put_string(body, value);
}

std::size_t encoded_size(const Request& request) noexcept {
  std::size_t bytes = 24 + 4 * (request.keys.size() + request.values.size());
  for (const std::string_view key : request.keys) bytes += key.size();
  for (const std::string_view value : request.values) bytes += value.size();
  return bytes;
}

bool decode(std::string_view body, Duration& timeout, Request& request) {
  ByteReader reader(body);
  // A year is as good as any longer time, and does not overflow a deadline.
  constexpr auto kYear = static_cast<std::uint64_t>(Duration(std::chrono::hours(24 * 365)).count());
  const auto wanted = reader.take<std::uint64_t>();
  timeout = Duration(static_cast<std::int64_t>(std::min(wanted, kYear)));
  request.number = static_cast<std::int64_t>(reader.take<std::uint64_t>());
  const auto keys = reader.take<std::uint32_t>();
  const auto values = reader.take<std::uint32_t>();
  return reader.ok() && read_items(reader, keys, request.keys) &&
         read_items(reader, values, request.values) && reader.finished();
}

void encode(const Reply& reply, std::string& body) {
  put(body, reply.failure ? wire_code(reply.failure->code) : std::uint8_t{0});
  put(body, static_cast<std::uint64_t>(reply.number));
  put(body, static_cast<std::uint32_t>(reply.failure ? 1 : reply.values.size()));
  if (reply.failure) return put_string(body, reply.failure->message);
  for (const std::string& value : reply.values) put_string(body, value);
}

bool decode(std::string_view body, Reply& reply) {
  ByteReader reader(body);
  const auto number = reader.take<std::uint8_t>();
  reply.number = static_cast<std::int64_t>(reader.take<std::uint64_t>());
  const auto count = reader.take<std::uint32_t>();
  std::vector<std::string_view> items;
  if (!reader.ok() || !read_items(reader, count, items) || !reader.finished()) return false;
  if (number == 0) {
    reply.values.assign(items.begin(), items.end());
    return true;
  }
  const auto code = code_from_wire(number);
  if (!code || items.size() != 1) return false;
  reply.failure = Failure{.code = *code, .message = std::string(items[0])};
  return true;
}

std::size_t max_body_bytes(const StoreLimits& limits) noexcept {
  constexpr std::size_t kHead = 4096;
  // An item's length travels in 32 bits. Limits may be any numbers, whose sum would wrap.
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
  const std::size_t pair =
      std::min(limits.key_bytes, kMost) + 2 * std::min(limits.value_bytes, kMost);
  return std::min(kMost, std::max(std::min(limits.output_queue_bytes, kMost), pair) + kHead);
}

}}  // namespace c10d::v0
