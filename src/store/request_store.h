// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "src/base/timeouts.h"
#include "src/store/protocol.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 {

// Every method of Store as one request. A store that derives from this answers requests and knows
// no methods.
template <class Base>
class RequestStore : public Base {
 public:
  explicit RequestStore(Duration timeout) { set_timeout(timeout); }

  void set(std::string_view key, std::string_view value, std::optional<Duration> timeout) override {
    ask({.op = StoreOp::set, .keys = {key}, .values = {value}}, timeout);
  }
  std::string get(std::string_view key, std::optional<Duration> timeout) override {
    return only_value(ask({.op = StoreOp::get, .keys = {key}}, timeout));
  }
  std::optional<std::string> try_get(std::string_view key,
                                     std::optional<Duration> timeout) override {
    return optional_value(ask({.op = StoreOp::try_get, .keys = {key}}, timeout));
  }
  std::int64_t add(std::string_view key, std::int64_t amount,
                   std::optional<Duration> timeout) override {
    return ask({.op = StoreOp::add, .number = amount, .keys = {key}}, timeout).number;
  }
  std::optional<std::string> compare_set(std::string_view key,
                                         std::optional<std::string_view> expected,
                                         std::string_view desired,
                                         std::optional<Duration> timeout) override {
    Request request{.op = StoreOp::compare_set, .keys = {key}};
    if (expected) request.values.push_back(*expected);
    request.values.push_back(desired);
    return optional_value(ask(request, timeout));
  }
  void wait(std::span<const std::string> keys, std::optional<Duration> timeout) override {
    ask({.op = StoreOp::wait, .keys = {keys.begin(), keys.end()}}, timeout);
  }
  bool check(std::span<const std::string> keys, std::optional<Duration> timeout) override {
    return ask({.op = StoreOp::check, .keys = {keys.begin(), keys.end()}}, timeout).number != 0;
  }
  std::size_t append(std::string_view key, std::string_view value,
                     std::optional<Duration> timeout) override {
    const Reply reply = ask({.op = StoreOp::append, .keys = {key}, .values = {value}}, timeout);
    return static_cast<std::size_t>(reply.number);
  }
  std::vector<std::string> multi_get(std::span<const std::string> keys,
                                     std::optional<Duration> timeout) override {
    Reply reply = ask({.op = StoreOp::multi_get, .keys = {keys.begin(), keys.end()}}, timeout);
    return std::move(reply.values);
  }
  void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                 std::optional<Duration> timeout) override {
    if (keys.size() != values.size())
      throw InvalidArgument("multi_set: " + std::to_string(keys.size()) + " keys but " +
                            std::to_string(values.size()) + " values");
    ask({.op = StoreOp::multi_set,
         .keys = {keys.begin(), keys.end()},
         .values = {values.begin(), values.end()}},
        timeout);
  }
  bool delete_key(std::string_view key, std::optional<Duration> timeout) override {
    return ask({.op = StoreOp::delete_key, .keys = {key}}, timeout).number != 0;
  }
  std::size_t num_keys(std::optional<Duration> timeout) override {
    return static_cast<std::size_t>(ask({.op = StoreOp::num_keys}, timeout).number);
  }
  void push(std::string_view key, std::string_view value,
            std::optional<Duration> timeout) override {
    ask({.op = StoreOp::push, .keys = {key}, .values = {value}}, timeout);
  }
  std::string pop(std::string_view key, std::optional<Duration> timeout) override {
    return only_value(ask({.op = StoreOp::pop, .keys = {key}}, timeout));
  }
  void barrier(std::string_view key, int size, std::optional<Duration> timeout) override {
    if (size < 1)
      throw InvalidArgument("barrier: the size is " + std::to_string(size) + "; it starts at 1");
    ask({.op = StoreOp::barrier, .number = size, .keys = {key}}, timeout);
  }

  Duration timeout() const noexcept override { return Duration(timeout_.load()); }
  void set_timeout(Duration timeout) override {
    timeout_ = std::clamp(timeout, Duration::zero(), kLongestTimeout).count();
  }

 protected:
  // Answers the request, or fails it once the deadline passed.
  virtual Reply perform(const Request& request, Deadline deadline) = 0;

 private:
  Reply ask(const Request& request, std::optional<Duration> timeout) {
    const Duration patience =
        std::clamp(timeout.value_or(this->timeout()), Duration::zero(), kLongestTimeout);
    const Deadline deadline = std::chrono::steady_clock::now() + patience;
    Reply reply =
        may_wait(request.op) ? perform_and_look(request, deadline) : perform(request, deadline);
    if (reply.failure) {
      reply.failure->op = "store " + std::string(to_string(request.op));
      throw_failure(*std::move(reply.failure));
    }
    return reply;
  }
  // A wait for a key asks again after each look of the thread's hook: a wait that ended leaves no
  // trace in a store.
  Reply perform_and_look(const Request& request, Deadline deadline) {
    Reply reply = perform(request, std::min(deadline, WaitLook::next()));
    while (reply.failure && reply.failure->code == Code::timed_out &&
           std::chrono::steady_clock::now() < deadline) {
      if (WaitLook::due()) throw_failure(WaitLook::failure());
      reply = perform(request, std::min(deadline, WaitLook::next()));
    }
    return reply;
  }
  static std::optional<std::string> optional_value(Reply reply) {
    if (reply.values.empty()) return {};
    return std::move(reply.values[0]);
  }
  // A store that answers without the value broke its promise.
  static std::string only_value(Reply reply) { return std::move(reply.values.at(0)); }

  std::atomic<Duration::rep> timeout_;
};

}}  // namespace c10d::v0
