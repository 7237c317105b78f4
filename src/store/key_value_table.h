// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "src/store/protocol.h"

namespace c10d { inline namespace v0 {

// Lets maps of strings be searched by string_view.
struct KeyHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view key) const noexcept {
    return std::hash<std::string_view>()(key);
  }
};
template <class T>
using KeyMap = std::unordered_map<std::string, T, KeyHash, std::equal_to<>>;

// The data of a store and what every op does to it, without waiting, threads or time. A request
// that fails changes nothing. Barriers are not its business.
class Table {
 public:
  explicit Table(StoreLimits limits) : limits_(limits) {}

  // Nothing: the request has to wait for a key.
  std::optional<Reply> apply(const Request& request);
  bool contains(std::string_view key) const { return entries_.find(key) != entries_.end(); }
  std::vector<std::string_view> missing(const Request& request) const;
  const StoreLimits& limits() const noexcept { return limits_; }

 private:
  using Queue = std::deque<std::string>;
  using Entry = std::variant<std::string, Queue>;  // a plain value, or a queue that is not empty

  std::optional<Reply> read(const Request& request);
  Reply write(std::string_view key, std::string_view value);
  Reply add(std::string_view key, std::int64_t amount);
  Reply compare_set(const Request& request);
  Reply append(std::string_view key, std::string_view value);
  Reply multi_set(const Request& request);
  Reply delete_key(std::string_view key);
  Reply push(std::string_view key, std::string_view value);
  std::optional<Reply> pop(std::string_view key);

  Entry* find(std::string_view key);
  // A plain value; sets `problem` when the key holds a queue.
  std::string* find_value(std::string_view key, std::optional<Reply>& problem);
  std::optional<Reply> no_room(std::size_t new_keys, std::size_t new_bytes,
                               std::size_t old_bytes) const;

  StoreLimits limits_;
  KeyMap<Entry> entries_;
  std::size_t bytes_ = 0;  // of keys, values and queued elements
};

}}  // namespace c10d::v0
