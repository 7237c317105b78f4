// SPDX-License-Identifier: BSD-3-Clause
// new_group in a group that breaks because of a rank that is no member of the new one.
#include <utility>

#include "tests/contract/forwarding_store.h"
#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

// What rank 0 and rank 1, the members, see of their rendezvous.
class WatchedStore final : public ForwardingStore {
 public:
  WatchedStore(std::shared_ptr<Store> store, int rank, Latch& met, Latch& broken)
      : ForwardingStore(std::move(store)), rank_(rank), met_(met), broken_(broken) {}

  std::optional<std::string> compare_set(std::string_view key,
                                         std::optional<std::string_view> expected,
                                         std::string_view desired, Limit limit) override {
    auto value = ForwardingStore::compare_set(key, expected, desired, limit);
    if (rank_ == 0 && is_meeting(key)) met_.count_down();
    return value;
  }
  // To rank 1 all seem to be there no sooner than the group is broken.
  std::vector<std::string> multi_get(std::span<const std::string> keys, Limit limit) override {
    if (rank_ != 1 || !is_meeting(keys.front())) return ForwardingStore::multi_get(keys, limit);
    broken_.wait();
    throw_failure({.code = Code::timed_out, .message = "not yet"});
  }

 private:
  static bool is_meeting(std::string_view key) { return key.find("/came") != key.npos; }

  const int rank_;
  Latch &met_, &broken_;
};

class Forming : public OnBackend {};

// Rank 0 has met rank 1 by then and joins; rank 1 learns of the failure first, and never joins.
TEST_P(Forming, WhatBreaksTheParentMeanwhileEndsItForEveryMember) {
  const auto store = make_hash_store(kTimeout);
  Latch met(1), broken(1);
  run_threads(3, [&](int rank) {
    ProcessGroup world =
        init_process_group({.backend = GetParam(),
                            .store = std::make_shared<WatchedStore>(store, rank, met, broken),
                            .rank = rank,
                            .size = 3,
                            .timeout = kTimeout});
    if (rank == 2) {
      met.wait();
      world.abort("rank 2 has enough");
      return broken.count_down();
    }
    world.set_timeout(std::chrono::seconds(10));
    const Failure failure = failure_of([&] { world.new_group({0, 1}); });
    EXPECT_EQ(failure.code, Code::revoked) << failure.message;
    EXPECT_EQ(failure.rank, 2) << failure.message;
    EXPECT_EQ(failure.group, "world");
  });
}

// Once it is there it is a group of its own.
TEST_P(Forming, WhatBreaksTheParentLaterLeavesTheGroupAlone) {
  Latch made(2), broken(1);
  run(3, [&](ProcessGroup& world) {
    if (world.rank() == 2) {
      made.wait();
      world.abort("rank 2 has enough");
      return broken.count_down();
    }
    ProcessGroup two = world.new_group({0, 1});
    made.count_down();
    broken.wait();
    expect_usable(two);
    EXPECT_EQ(code_of([&] { world.new_group({0, 1}); }), Code::revoked);
    expect_usable(two);
  });
}

C10D_ON_EACH_BACKEND(Forming);

}}  // namespace c10d::contract
