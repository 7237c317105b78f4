// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "c10d/error.h"
#include "c10d/spi/backend.h"

namespace c10d { inline namespace v0 {

namespace detail {

// Calls read(patience) until it does not time out, or the deadline has passed.
template <class Read>
void until_there(const BackendContext& context, Deadline deadline, Read read) {
  // How long it waits for the store between looks at the group.
  constexpr Duration kShortest = std::chrono::milliseconds(1);
  constexpr Duration kLongest = std::chrono::milliseconds(100);
  while (true) {
    if (const auto failure = context.control->failure()) throw_failure(*failure);
    const Duration left = deadline - std::chrono::steady_clock::now();
    try {
      return read(std::clamp(left, kShortest, kLongest));
    } catch (const DistTimeoutError&) {
      if (std::chrono::steady_clock::now() >= deadline) return;
    }
  }
}

}  // namespace detail

// What another rank puts into the store of the group; nothing if it has not by the deadline. Throws
// the failure of the group, and what the store throws.
inline std::optional<std::string> read_key(const BackendContext& context, const std::string& key,
                                           Deadline deadline) {
  std::optional<std::string> value;
  detail::until_there(context, deadline,
                      [&](Duration patience) { value = context.store->get(key, patience); });
  return value;
}

// What all ranks put into the store of the group, by key; nothing if they have not by the deadline.
// Throws as read_key().
inline std::optional<std::vector<std::string>> read_keys(const BackendContext& context,
                                                         const std::vector<std::string>& keys,
                                                         Deadline deadline) {
  std::optional<std::vector<std::string>> values;
  detail::until_there(context, deadline, [&](Duration patience) {
    values = context.store->multi_get(keys, patience);
  });
  return values;
}

// Counts this rank in under `key`, once, and waits until all ranks of the group are. False if they
// are not by the deadline, or the group broke. Throws what the store throws.
inline bool meet_at(const BackendContext& context, const std::string& key, Deadline deadline) {
  constexpr std::chrono::milliseconds kLook{2};
  const auto size = static_cast<std::int64_t>(context.size);
  std::int64_t came = context.store->add(key, 1);
  while (came < size && !context.control->broken() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kLook);
    came = context.store->add(key, 0);
  }
  return came >= size;
}

}}  // namespace c10d::v0
