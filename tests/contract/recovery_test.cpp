// SPDX-License-Identifier: BSD-3-Clause
// init.h: one process makes several groups at one address, one after the other or side by side, and
// who is left of a group that failed goes on in another.
#include <vector>

#include "tests/contract/held_port.h"
#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

ProcessGroup meet(const std::string& backend, const std::string& url, std::string name, int rank,
                  int size) {
  return init_process_group({.backend = backend,
                             .url = url,
                             .rank = rank,
                             .size = size,
                             .timeout = kTimeout,
                             .name = std::move(name)});
}

TEST(Recovery, GroupsSideBySideShareTheStoreThatRank0Serves) {
  const HeldPort port;
  run_threads(3, [&](int rank) {
    try {
      ProcessGroup first = meet("native", port.url(), "first", rank, 3);
      ProcessGroup second = meet("native", port.url(), "second", rank, 3);
      first = ProcessGroup();
      expect_usable(second);  // its store is still there
      second.store().set(std::to_string(rank), "here");
      EXPECT_EQ(second.store().get(std::to_string((rank + 1) % 3)), "here");
      second.barrier();  // the store's server lives in rank 0
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  });
}

class RecoveryOn : public OnBackend {};
C10D_ON_EACH_BACKEND(RecoveryOn);

TEST_P(RecoveryOn, TheOthersGoOnWithoutTheRankThatLeft) {
  const HeldPort port;
  Latch met(3);
  run_threads(3, [&](int rank) {
    try {
      ProcessGroup group = meet(GetParam(), port.url(), "world", rank, 3);
      met.arrive_and_wait();
      if (rank == 1) return;
      const Failure failure = failure_of([&] { group.barrier(); });
      EXPECT_EQ(reason_of(failure.code), Reason::peer_lost) << failure.message;
      EXPECT_EQ(failure.rank, 1) << failure.message;
      group.store().set("left/" + std::to_string(rank), "");  // serves on for who is left
      group.store().wait(std::vector<std::string>{"left/0", "left/2"});

      // The broken group is there until the next one is: with it the store.
      group = meet(GetParam(), port.url(), "rest", rank - (rank > failure.rank), 2);
      EXPECT_EQ(group.rank(), rank / 2);
      expect_usable(group);
      group.barrier();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  });
}

}}  // namespace c10d::contract
