// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault/trap_store.h"

#include <signal.h>

#include <atomic>
#include <sstream>
#include <utility>

#include "c10d/error.h"

namespace c10d::fault {
namespace {

using Limit = std::optional<Duration>;

class TrapStore final : public Store {
 public:
  TrapStore(std::shared_ptr<Store> store, const std::string& trap) : store_(std::move(store)) {
    std::istringstream words(trap);
    std::string how, number;
    std::getline(words, how, ':');
    std::getline(words, key_, ':');
    std::getline(words, number);
    dies_ = how == "die";
    left_ = std::stoi(number);
  }

  void set(std::string_view key, std::string_view value, Limit limit) override {
    spring(key);
    store_->set(key, value, limit);
  }
  std::string get(std::string_view key, Limit limit) override {
    spring(key);
    return store_->get(key, limit);
  }
  void wait(std::span<const std::string> keys, Limit limit) override {
    for (const std::string& key : keys) spring(key);
    store_->wait(keys, limit);
  }

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
  void spring(std::string_view key) {
    if (key.find(key_) == key.npos || key == last_) return;
    last_ = key;
    if (--left_ != 0) return;
    if (dies_) ::raise(SIGKILL);
    throw_failure({.code = Code::store_error, .message = "the trap was sprung"});
  }

  const std::shared_ptr<Store> store_;
  std::string key_, last_;  // by the one thread that joins
  bool dies_ = false;
  int left_ = 0;
};

}  // namespace

std::shared_ptr<Store> make_trap_store(std::shared_ptr<Store> store, const std::string& trap) {
  return std::make_shared<TrapStore>(std::move(store), trap);
}

}  // namespace c10d::fault
