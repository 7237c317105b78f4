// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/store.h"

namespace c10d::contract {

// For stores that differ from another one in a call or two.
class ForwardingStore : public Store {
 public:
  using Limit = std::optional<Duration>;

  explicit ForwardingStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void set(std::string_view key, std::string_view value, Limit limit) override {
    store_->set(key, value, limit);
  }
  std::string get(std::string_view key, Limit limit) override { return store_->get(key, limit); }
  std::optional<std::string> try_get(std::string_view key, Limit limit) override {
    return store_->try_get(key, limit);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Limit limit) override {
    return store_->add(key, amount, limit);
  }
  std::optional<std::string> compare_set(std::string_view key,
                                         std::optional<std::string_view> expected,
                                         std::string_view desired, Limit limit) override {
    return store_->compare_set(key, expected, desired, limit);
  }
  void wait(std::span<const std::string> keys, Limit limit) override { store_->wait(keys, limit); }
  bool check(std::span<const std::string> keys, Limit limit) override {
    return store_->check(keys, limit);
  }
  std::size_t append(std::string_view key, std::string_view value, Limit limit) override {
    return store_->append(key, value, limit);
  }
  std::vector<std::string> multi_get(std::span<const std::string> keys, Limit limit) override {
    return store_->multi_get(keys, limit);
  }
  void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                 Limit limit) override {
    store_->multi_set(keys, values, limit);
  }
  bool delete_key(std::string_view key, Limit limit) override {
    return store_->delete_key(key, limit);
  }
  std::size_t num_keys(Limit limit) override { return store_->num_keys(limit); }
  void push(std::string_view key, std::string_view value, Limit limit) override {
    store_->push(key, value, limit);
  }
  std::string pop(std::string_view key, Limit limit) override { return store_->pop(key, limit); }
  void barrier(std::string_view key, int size, Limit limit) override {
    store_->barrier(key, size, limit);
  }
  Duration timeout() const noexcept override { return store_->timeout(); }
  void set_timeout(Duration timeout) override { store_->set_timeout(timeout); }

 private:
  const std::shared_ptr<Store> store_;
};

}  // namespace c10d::contract
