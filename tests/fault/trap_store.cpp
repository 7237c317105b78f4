// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault/trap_store.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <sstream>
#include <utility>

#include "c10d/error.h"
#include "tests/contract/forwarding_store.h"

namespace c10d::fault {
namespace {

class TrapStore final : public contract::ForwardingStore {
 public:
  TrapStore(std::shared_ptr<Store> store, const std::string& trap)
      : ForwardingStore(std::move(store)) {
    std::istringstream words(trap);
    std::string number;
    std::getline(words, how_, ':');
    std::getline(words, key_, ':');
    std::getline(words, number);
    left_ = std::stoi(number);
  }

  void set(std::string_view key, std::string_view value, Limit limit) override {
    spring(key);
    ForwardingStore::set(key, value, limit);
  }
  std::string get(std::string_view key, Limit limit) override {
    spring(key);
    return ForwardingStore::get(key, limit);
  }
  void wait(std::span<const std::string> keys, Limit limit) override {
    for (const std::string& key : keys) spring(key);
    ForwardingStore::wait(keys, limit);
  }

 private:
  void spring(std::string_view key) {
    if (key.find(key_) == key.npos || key == last_) return;
    last_ = key;
    if (--left_ != 0) return;
    if (how_ == "die") ::raise(SIGKILL);
    if (how_ == "exec") ::execl("/bin/sleep", "sleep", "60", nullptr);
    throw_failure({.code = Code::store_error, .message = "the trap was sprung"});
  }

  std::string how_, key_, last_;  // by the one thread that joins
  int left_ = 0;
};

}  // namespace

std::shared_ptr<Store> make_trap_store(std::shared_ptr<Store> store, const std::string& trap) {
  return std::make_shared<TrapStore>(std::move(store), trap);
}

}  // namespace c10d::fault
