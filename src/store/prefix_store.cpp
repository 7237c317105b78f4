// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c10d/error.h"
#include "c10d/store.h"
#include "src/base/timeouts.h"
#include "src/net/network.h"
#include "src/store/own_address.h"
#include "src/store/refusals.h"

namespace c10d { inline namespace v0 {

namespace {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {
    set_timeout(store_->timeout());
  }

  void set(std::string_view key, std::string_view value, std::optional<Duration> timeout) override {
    store_->set(full(key), value, patience(timeout));
  }
  std::string get(std::string_view key, std::optional<Duration> timeout) override {
    return store_->get(full(key), patience(timeout));
  }
  std::optional<std::string> try_get(std::string_view key,
                                     std::optional<Duration> timeout) override {
    return store_->try_get(full(key), patience(timeout));
  }
  std::int64_t add(std::string_view key, std::int64_t amount,
                   std::optional<Duration> timeout) override {
    return store_->add(full(key), amount, patience(timeout));
  }
  std::optional<std::string> compare_set(std::string_view key,
                                         std::optional<std::string_view> expected,
                                         std::string_view desired,
                                         std::optional<Duration> timeout) override {
    return store_->compare_set(full(key), expected, desired, patience(timeout));
  }
  void wait(std::span<const std::string> keys, std::optional<Duration> timeout) override {
    store_->wait(full(keys), patience(timeout));
  }
  bool check(std::span<const std::string> keys, std::optional<Duration> timeout) override {
    return store_->check(full(keys), patience(timeout));
  }
  std::size_t append(std::string_view key, std::string_view value,
                     std::optional<Duration> timeout) override {
    return store_->append(full(key), value, patience(timeout));
  }
  std::vector<std::string> multi_get(std::span<const std::string> keys,
                                     std::optional<Duration> timeout) override {
    return store_->multi_get(full(keys), patience(timeout));
  }
  void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                 std::optional<Duration> timeout) override {
    store_->multi_set(full(keys), values, patience(timeout));
  }
  bool delete_key(std::string_view key, std::optional<Duration> timeout) override {
    return store_->delete_key(full(key), patience(timeout));
  }
  std::size_t num_keys(std::optional<Duration> timeout) override {
    return store_->num_keys(patience(timeout));
  }
  void push(std::string_view key, std::string_view value,
            std::optional<Duration> timeout) override {
    store_->push(full(key), value, patience(timeout));
  }
  std::string pop(std::string_view key, std::optional<Duration> timeout) override {
    return store_->pop(full(key), patience(timeout));
  }
  void barrier(std::string_view key, int size, std::optional<Duration> timeout) override {
    store_->barrier(full(key), size, patience(timeout));
  }

  // Of this view only: other users of the store keep theirs.
  Duration timeout() const noexcept override { return Duration(timeout_.load()); }
  void set_timeout(Duration timeout) override { timeout_ = timeout.count(); }

  Store& inner() const noexcept { return *store_; }

 private:
  std::string full(std::string_view key) const { return std::string(prefix_).append(key); }
  std::vector<std::string> full(std::span<const std::string> keys) const {
    std::vector<std::string> all;
    all.reserve(keys.size());
    for (const std::string& key : keys) all.push_back(full(key));
    return all;
  }
  Duration patience(std::optional<Duration> timeout) const {
    return timeout.value_or(this->timeout());
  }

  const std::string prefix_;
  const std::shared_ptr<Store> store_;
  std::atomic<Duration::rep> timeout_{0};
};

}  // namespace

namespace {

// Also behind prefixes; null where it is another store.
TcpStore* tcp_store_of(Store& store) {
  const auto* const prefix = dynamic_cast<PrefixStore*>(&store);
  return prefix ? tcp_store_of(prefix->inner()) : dynamic_cast<TcpStore*>(&store);
}

}  // namespace

std::string own_address(Store& store, const std::vector<Member>& members) {
  constexpr std::size_t kMost = 3;  // a name server may be slow
  std::vector<std::string> hosts;
  if (const TcpStore* const served = tcp_store_of(store)) hosts.push_back(served->host());
  for (const Member& member : members)
    if (!member.same_host && hosts.size() < kMost) hosts.push_back(member.host);
  return address_for_others(hosts);
}

std::string refusals_of(Store& store) noexcept try {
  TcpStore* const served = tcp_store_of(store);
  const auto text = served ? served->try_get(kRefusalsKey, kStorePatience) : std::nullopt;
  return text ? "; " + *text : "";
} catch (const std::exception&) {
  return {};
}

std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store) {
  if (!store) throw InvalidArgument("make_prefix_store: the store is null");
  return std::make_shared<PrefixStore>(std::move(prefix), std::move(store));
}

}}  // namespace c10d::v0
