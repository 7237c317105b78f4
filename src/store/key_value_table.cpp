// SPDX-License-Identifier: BSD-3-Clause
#include "src/store/key_value_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

namespace c10d { inline namespace v0 {

namespace {

// What a queued element costs besides its bytes, so that empty elements do not escape the limit.
constexpr std::size_t kElementBytes = 32;

Reply number_reply(std::int64_t number) {
  Reply reply;
  reply.number = number;
  return reply;
}

Reply value_reply(std::string value) {
  Reply reply;
  reply.values.push_back(std::move(value));
  return reply;
}

Reply is_a_queue(std::string_view key) {
  return error_reply(
      Code::store_error,
      fmt::format("the key {} holds a queue; use push, pop, check, wait or delete_key",
                  quoted(key)));
}

}  // namespace

Table::Entry* Table::find(std::string_view key) {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

std::string* Table::find_value(std::string_view key, std::optional<Reply>& problem) {
  Entry* entry = find(key);
  if (entry == nullptr) return nullptr;
  std::string* value = std::get_if<std::string>(entry);
  if (value == nullptr) problem = is_a_queue(key);
  return value;
}

std::optional<Reply> Table::no_room(std::size_t new_keys, std::size_t new_bytes,
                                    std::size_t old_bytes) const {
  if (new_keys > 0 && entries_.size() + new_keys > limits_.keys)
    return error_reply(
        Code::store_limit,
        fmt::format("the store holds {} keys, the most it may (StoreLimits::keys = {})",
                    entries_.size(), limits_.keys));
  if (new_bytes > old_bytes && bytes_ - old_bytes + new_bytes > limits_.total_bytes)
    return error_reply(Code::store_limit,
                       fmt::format("the store holds {} bytes and has no room for {} more "
                                   "(StoreLimits::total_bytes = {})",
                                   bytes_, new_bytes - old_bytes, limits_.total_bytes));
  return {};
}

std::vector<std::string_view> Table::missing(const Request& request) const {
  std::vector<std::string_view> keys;
  for (const std::string_view key : request.keys)
    if (!contains(key)) keys.push_back(key);
  return keys;
}

std::optional<Reply> Table::apply(const Request& request) {
  if (auto refusal = refuse(request, limits_)) return refusal;
  switch (request.op) {
    case StoreOp::get:
    case StoreOp::try_get:
    case StoreOp::multi_get:
    case StoreOp::wait:
    case StoreOp::check:
      return read(request);
    case StoreOp::set:
      return write(request.keys[0], request.values[0]);
    case StoreOp::add:
      return add(request.keys[0], request.number);
    case StoreOp::compare_set:
      return compare_set(request);
    case StoreOp::append:
      return append(request.keys[0], request.values[0]);
    case StoreOp::multi_set:
      return multi_set(request);
    case StoreOp::delete_key:
      return delete_key(request.keys[0]);
    case StoreOp::num_keys:
      return number_reply(static_cast<std::int64_t>(entries_.size()));
    case StoreOp::push:
      return push(request.keys[0], request.values[0]);
    case StoreOp::pop:
      return pop(request.keys[0]);
    case StoreOp::barrier:
      break;
  }
  return error_reply(Code::store_error, "internal error: a barrier reached the table");
}

std::optional<Reply> Table::read(const Request& request) {
  const bool all = std::all_of(request.keys.begin(), request.keys.end(),
                               [&](std::string_view key) { return contains(key); });
  if (request.op == StoreOp::check) return number_reply(all ? 1 : 0);
  if (!all && request.op == StoreOp::try_get) return Reply{};
  if (!all) return {};
  Reply reply;
  if (request.op == StoreOp::wait) return reply;
  std::size_t bytes = 0;
  for (const std::string_view key : request.keys) {
    std::optional<Reply> problem;
    const std::string* value = find_value(key, problem);
    if (problem) return problem;
    bytes += value->size() + 4;
    if (request.op == StoreOp::multi_get && bytes > limits_.output_queue_bytes)
      return error_reply(
          Code::store_limit,
          fmt::format("the values exceed {} bytes in one answer "
                      "(StoreLimits::output_queue_bytes); ask for fewer keys at a time",
                      limits_.output_queue_bytes));
    reply.values.push_back(*value);
  }
  return reply;
}

Reply Table::write(std::string_view key, std::string_view value) {
  std::optional<Reply> problem;
  std::string* old = find_value(key, problem);
  if (!problem)
    problem = old != nullptr ? no_room(0, value.size(), old->size())
                             : no_room(1, key.size() + value.size(), 0);
  if (problem) return *std::move(problem);
  if (old != nullptr) {
    bytes_ = bytes_ - old->size() + value.size();
    old->assign(value);
  } else {
    entries_.emplace(std::string(key), std::string(value));
    bytes_ += key.size() + value.size();
  }
  return {};
}

Reply Table::add(std::string_view key, std::int64_t amount) {
  std::optional<Reply> problem;
  const std::string* old = find_value(key, problem);
  if (problem) return *std::move(problem);
  std::int64_t number = 0;
  if (old != nullptr) {
    const auto [end, error] = std::from_chars(old->data(), old->data() + old->size(), number);
    if (error != std::errc() || end != old->data() + old->size())
      return error_reply(Code::store_error, fmt::format("the value of {} is no number: {}",
                                                        quoted(key), quoted(*old)));
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(number, amount, &sum))
    return error_reply(Code::store_error,
                       fmt::format("{} + {} at {} overflows 64 bits", number, amount, quoted(key)));
  Reply reply = write(key, std::to_string(sum));
  reply.number = sum;
  return reply;
}

Reply Table::compare_set(const Request& request) {
  std::optional<Reply> problem;
  const std::string* old = find_value(request.keys[0], problem);
  if (problem) return *std::move(problem);
  const bool wants_value = request.values.size() == 2;
  const bool equal = wants_value ? old != nullptr && *old == request.values[0] : old == nullptr;
  if (!equal) return old != nullptr ? value_reply(*old) : Reply{};
  Reply written = write(request.keys[0], request.values.back());
  if (!written.failure) written.values.emplace_back(request.values.back());
  return written;
}

Reply Table::append(std::string_view key, std::string_view value) {
  std::optional<Reply> problem;
  std::string* old = find_value(key, problem);
  if (problem) return *std::move(problem);
  if (old == nullptr) {
    Reply reply = write(key, value);
    reply.number = static_cast<std::int64_t>(value.size());
    return reply;
  }
  const std::size_t length = old->size() + value.size();
  if (length > limits_.value_bytes)
    return error_reply(Code::store_limit, fmt::format("the value of {} would have {} bytes "
                                                      "(StoreLimits::value_bytes = {})",
                                                      quoted(key), length, limits_.value_bytes));
  if ((problem = no_room(0, value.size(), 0))) return *std::move(problem);
  old->append(value);
  bytes_ += value.size();
  return number_reply(static_cast<std::int64_t>(length));
}

Reply Table::multi_set(const Request& request) {
  // All or nothing: first whether every pair fits, then the writes. A key that is given twice takes
  // the last value.
  std::unordered_map<std::string_view, std::string_view> last;
  for (std::size_t i = 0; i < request.keys.size(); ++i) last[request.keys[i]] = request.values[i];
  std::size_t new_keys = 0;
  std::size_t new_bytes = 0;
  std::size_t old_bytes = 0;
  for (const auto& [key, value] : last) {
    std::optional<Reply> problem;
    const std::string* old = find_value(key, problem);
    if (problem) return *std::move(problem);
    new_keys += old == nullptr ? 1 : 0;
    new_bytes += value.size() + (old == nullptr ? key.size() : 0);
    old_bytes += old == nullptr ? 0 : old->size();
  }
  if (auto problem = no_room(new_keys, new_bytes, old_bytes)) return *std::move(problem);
  // Shrinking writes go first, so that no single write meets a limit that the sum of all keeps.
  for (const bool shrinking : {true, false}) {
    for (const auto& [key, value] : last) {
      std::optional<Reply> problem;
      const std::string* old = find_value(key, problem);
      const bool shrinks = old != nullptr && old->size() >= value.size();
      if (shrinks == shrinking) write(key, value);
    }
  }
  return {};
}

Reply Table::delete_key(std::string_view key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return number_reply(0);
  bytes_ -= key.size();
  if (const auto* value = std::get_if<std::string>(&found->second)) {
    bytes_ -= value->size();
  } else {
    for (const std::string& element : std::get<Queue>(found->second))
      bytes_ -= element.size() + kElementBytes;
  }
  entries_.erase(found);
  return number_reply(1);
}

Reply Table::push(std::string_view key, std::string_view value) {
  Entry* entry = find(key);
  if (entry != nullptr && std::holds_alternative<std::string>(*entry))
    return error_reply(Code::store_error,
                       fmt::format("the key {} holds a plain value", quoted(key)));
  const std::size_t extra = kElementBytes + value.size() + (entry == nullptr ? key.size() : 0);
  if (auto problem = no_room(entry == nullptr ? 1 : 0, extra, 0)) return *std::move(problem);
  if (entry == nullptr) entry = &entries_.emplace(std::string(key), Queue()).first->second;
  std::get<Queue>(*entry).emplace_back(value);
  bytes_ += extra;
  return {};
}

std::optional<Reply> Table::pop(std::string_view key) {
  Entry* entry = find(key);
  if (entry == nullptr) return {};
  Queue* queue = std::get_if<Queue>(entry);
  if (queue == nullptr)
    return error_reply(Code::store_error,
                       fmt::format("the key {} holds a plain value", quoted(key)));
  std::string element = std::move(queue->front());
  queue->pop_front();
  bytes_ -= element.size() + kElementBytes;
  if (queue->empty()) {
    bytes_ -= key.size();
    entries_.erase(entries_.find(key));
  }
  return value_reply(std::move(element));
}

}}  // namespace c10d::v0
