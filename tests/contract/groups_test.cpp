// SPDX-License-Identifier: BSD-3-Clause
// new_group and split: who calls, who is in, in which order; groups are independent of each other.
#include <array>
#include <latch>
#include <set>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

class Groups : public OnBackend {};

std::vector<std::int32_t> gathered_ranks(ProcessGroup& group, std::int32_t world_rank) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(group.size()));
  group.all_gather(all, std::span(&world_rank, 1));
  return all;
}

TEST_P(Groups, OnlyTheMembersCallNewGroup) {
  run(4, [](ProcessGroup& world) {
    if (world.rank() == 0 || world.rank() == 3) {
      ProcessGroup half = world.new_group({0, 3});
      EXPECT_EQ(half.size(), 2);
      EXPECT_EQ(half.rank(), world.rank() == 0 ? 0 : 1);
      EXPECT_EQ(half.backend(), world.backend());
      EXPECT_EQ(half.members()[1].pid, world.members()[3].pid);
      EXPECT_EQ(half.members()[1].rank, 1);
      EXPECT_EQ(gathered_ranks(half, world.rank()), (std::vector{0, 3}));
    }
    expect_usable(world);
  });
}

TEST_P(Groups, RanksKeepTheOrderGiven) {
  run(3, [](ProcessGroup& world) {
    ProcessGroup reversed = world.new_group({2, 1, 0});
    EXPECT_EQ(reversed.rank(), 2 - world.rank());
    EXPECT_EQ(gathered_ranks(reversed, world.rank()), (std::vector{2, 1, 0}));
    std::array<std::int32_t, 1> data{world.rank()};
    reversed.broadcast(data, 0);
    EXPECT_EQ(data[0], 2);
  });
}

TEST_P(Groups, OverlappingGroupsAreMadeWithoutTheOthers) {
  run(3, [](ProcessGroup& world) {
    // A ring of pairs: rank 1 makes {0, 1} first, then {1, 2}; rank 2 waits in {1, 2} meanwhile.
    ProcessGroup low, high;
    if (world.rank() <= 1) low = world.new_group({0, 1});
    if (world.rank() >= 1) high = world.new_group({1, 2});
    if (low) {
      EXPECT_EQ(gathered_ranks(low, world.rank()), (std::vector{0, 1}));
    }
    if (high) {
      EXPECT_EQ(gathered_ranks(high, world.rank()), (std::vector{1, 2}));
    }
    expect_usable(world);
  });
}

TEST_P(Groups, WrongMembersAreInvalidArguments) {
  run(2, [](ProcessGroup& world) {
    const int me = world.rank();
    EXPECT_THROW(world.new_group({1 - me}), InvalidArgument);
    EXPECT_THROW(world.new_group({me, me}), InvalidArgument);
    EXPECT_THROW(world.new_group({me, 2}), InvalidArgument);
    EXPECT_THROW(world.new_group({me, -1}), InvalidArgument);
    EXPECT_THROW(world.new_group(std::span<const int>()), InvalidArgument);
    ProcessGroup both = world.new_group({0, 1});
    expect_usable(both);
  });
}

TEST_P(Groups, TheSameMembersMayMakeManyGroupsAndNamesTellThemApart) {
  run(2, [](ProcessGroup& world) {
    std::vector<ProcessGroup> groups(4);
    groups[0] = world.new_group({0, 1});
    groups[1] = world.new_group({0, 1});
    // A name makes another group of the same members.

    groups[2] = world.new_group({0, 1}, "a");
    groups[3] = world.new_group({0, 1}, "b");
    std::set<std::string> ids{world.id()};
    for (ProcessGroup& group : groups) {
      ids.insert(group.id());
      EXPECT_TRUE(group.id().starts_with(world.id())) << group.id();
      expect_usable(group);
    }
    EXPECT_EQ(ids.size(), 5u);
    // Their calls do not match each other's: one may be ahead.
    std::array<std::int32_t, 1> first{1}, second{10};
    const std::size_t start = static_cast<std::size_t>(world.rank());
    Work one = groups[start].async().all_reduce(start == 0 ? first : second);
    Work two = groups[1 - start].async().all_reduce(start == 0 ? second : first);
    one.wait();
    two.wait();
    EXPECT_EQ(first[0], 2);
    EXPECT_EQ(second[0], 20);
  });
}

TEST_P(Groups, BeginWithTheTimeoutOfTheirParent) {
  run(2, [](ProcessGroup& world) {
    world.set_timeout(3 * kTimeout);
    ProcessGroup sub = world.new_group({0, 1});
    ProcessGroup part = world.split(0);
    world.set_timeout(2 * kTimeout);
    EXPECT_EQ(sub.timeout(), Duration(3 * kTimeout));
    EXPECT_EQ(part.timeout(), Duration(3 * kTimeout));
    sub.set_timeout(kTimeout);
    EXPECT_EQ(world.timeout(), Duration(2 * kTimeout));
  });
}

TEST_P(Groups, AGroupOfAGroup) {
  run(4, [](ProcessGroup& world) {
    if (world.rank() == 0) return;
    ProcessGroup three = world.new_group({3, 2, 1});
    if (three.rank() == 1) return;
    ProcessGroup two = three.new_group({2, 0});
    EXPECT_EQ(gathered_ranks(two, world.rank()), (std::vector{1, 3}));
  });
}

TEST_P(Groups, AGroupOfOneIsAGroup) {
  run(2, [](ProcessGroup& world) {
    ProcessGroup alone = world.new_group({world.rank()});
    EXPECT_EQ(alone.size(), 1);
    expect_usable(alone);
    alone.monitored_barrier();
  });
}

// One that died breaks the parent as one that aborts it does.
TEST_P(Groups, AMemberThatBreaksTheParentEndsTheWaitForIt) {
  run(3, [](ProcessGroup& world) {
    if (world.rank() == 2) return world.abort("rank 2 does not arrive");
    const Failure failure = failure_of([&] { world.new_group({2, 0, 1}); });
    EXPECT_EQ(failure.code, Code::revoked) << failure.message;
  });
}

TEST_P(Groups, AMemberThatDoesNotComeIsNamedAndTheParentGoesOn) {
  std::latch tried(1);
  run(2, [&](ProcessGroup& world) {
    if (world.rank() == 0) {
      world.set_timeout(std::chrono::milliseconds(100));
      const Failure failure = failure_of([&] { world.new_group({0, 1}); });
      EXPECT_EQ(failure.code, Code::timed_out);
      EXPECT_EQ(failure.rank, 1);
      EXPECT_NE(failure.message.find("rank 1 (host"), std::string::npos) << failure.message;
      EXPECT_NE(failure.message.find("ranks 0, 1 in this order"), std::string::npos)
          << failure.message;
      world.set_timeout(kTimeout);
      tried.count_down();
    } else {
      tried.wait();
    }
    expect_usable(world);
  });
}

TEST_P(Groups, ARankThatLeftIsNotWaitedFor) {
  const Body calls[] = {[](ProcessGroup& world) {
                          world.new_group({0, 1});
                        },
                        [](ProcessGroup& world) { world.split(0); },
                        [](ProcessGroup& world) { world.allocate<float>(1); }};
  for (const Body& call : calls)
    run(2, [&](ProcessGroup& world) {
      if (world.rank() == 1) return world.shutdown();
      world.set_timeout(std::chrono::hours(1));
      const Failure failure = failure_of([&] { call(world); });
      EXPECT_EQ(failure.code, Code::peer_left) << failure.message;
      EXPECT_EQ(failure.rank, 1);
      EXPECT_EQ(code_of([&] { world.barrier(); }), Code::peer_left);
    });
}

TEST_P(Groups, AMessageFromAnybodyIsNotWaitedForOnceAllOthersLeft) {
  run(3, [&](ProcessGroup& world) {
    if (world.rank() != 1) return world.shutdown();
    world.set_timeout(std::chrono::hours(1));
    std::vector<float> data(4);
    const Failure failure = failure_of([&] { world.recv(data, kAnySource); });
    EXPECT_EQ(failure.code, Code::peer_left) << failure.message;
    EXPECT_TRUE(failure.rank == 0 || failure.rank == 2) << failure.rank;
  });
}

// Also those that would wait for longer; and all can try again.
TEST(GroupsByStore, AMeetingThatOneRankGivesUpIsOverForAllThatWait) {
  const auto store = make_hash_store(kTimeout);
  Latch given_up(2);
  run_threads(3, [&](int rank) {
    ProcessGroup world = init_process_group(
        {.backend = "native", .store = store, .rank = rank, .size = 3, .timeout = kTimeout});
    if (rank < 2) {
      if (rank == 0) store->wait(std::vector<std::string>{"world.1/reached/1"});
      world.set_timeout(rank == 0 ? Duration(std::chrono::milliseconds(1)) : std::chrono::hours(1));
      const Failure failure = failure_of([&] { world.new_group({0, 1, 2}); });
      EXPECT_EQ(failure.code, Code::timed_out) << failure.message;
      EXPECT_EQ(failure.rank, 2);
      EXPECT_EQ(failure.group, "world");
      given_up.count_down();
    }
    given_up.wait();
    world.set_timeout(kTimeout);
    ProcessGroup group = world.new_group({0, 1, 2});
    expect_usable(group);
  });
}

TEST(GroupsByStore, ADeadlineSaysThatAPeerIsInNewGroup) {
  const auto store = make_hash_store(kTimeout);
  run_threads(2, [&](int rank) {
    ProcessGroup world = init_process_group(
        {.backend = "native", .store = store, .rank = rank, .size = 2, .timeout = kTimeout});
    if (rank == 0) store->wait(std::vector<std::string>{"world.1/reached/1"});
    const Failure failure = failure_of([&] {
      if (rank == 0)
        world.barrier({.timeout = std::chrono::milliseconds(100)});
      else
        world.new_group({0, 1});
    });
    EXPECT_EQ(failure.code, Code::timed_out);
    EXPECT_EQ(failure.rank, 1);
    EXPECT_NE(failure.message.find("in new_group()"), std::string::npos) << failure.message;
  });
}

// Of a call that is over nobody is told, whether it gave a group or not.
TEST_P(Groups, ACallThatIsOverDoesNotCrossALaterOne) {
  Latch tried(1), called(1);
  run(2, [&](ProcessGroup& world) {
    const auto try_alone = [&](std::initializer_list<int> ranks) {
      world.set_timeout(std::chrono::milliseconds(100));
      EXPECT_EQ(code_of([&] { world.new_group(ranks); }), Code::timed_out);
      world.set_timeout(kTimeout);
    };
    ProcessGroup first = world.new_group({0, 1});
    if (world.rank() == 0) {
      try_alone({0, 1});
      tried.count_down();
      called.wait();
    } else {
      tried.wait();
      try_alone({1, 0});
      called.count_down();
    }
    ProcessGroup second = world.new_group({0, 1});
    expect_usable(second);
    ProcessGroup third = world.new_group({1, 0});
    expect_usable(third);
  });
}

// What every rank of `size` is told when rank r makes call r, and none can be made.
void expect_crossing(const Groups& suite, const std::vector<Body>& calls,
                     const std::vector<std::string>& texts) {
  suite.run(static_cast<int>(calls.size()), [&](ProcessGroup& world) {
    const Failure failure =
        failure_of([&] { calls[static_cast<std::size_t>(world.rank())](world); });
    EXPECT_EQ(failure.code, Code::mismatch) << failure.message;
    for (const std::string& text : texts)
      EXPECT_NE(failure.message.find(text), std::string::npos) << failure.message;
    EXPECT_EQ(code_of([&] { world.barrier(); }), Code::mismatch);
  });
}

TEST_P(Groups, CallsThatWaitForEachOtherAreAMismatchThatShowsBoth) {
  expect_crossing(*this,
                  {[](ProcessGroup& world) {
                     world.new_group({0, 1});
                   },
                   [](ProcessGroup& world) {
                     world.new_group({1, 0});
                   }},
                  {"rank 0 called new_group({0, 1})", "rank 1 called new_group({1, 0})"});
  expect_crossing(
      *this,
      {[](ProcessGroup& world) {
         world.new_group({0, 1}, "left");
       },
       [](ProcessGroup& world) {
         world.new_group({0, 1}, "right");
       }},
      {"rank 0 called new_group({0, 1}, \"left\")", "rank 1 called new_group({0, 1}, \"right\")"});
  expect_crossing(*this,
                  {[](ProcessGroup& world) { world.split(7); },
                   [](ProcessGroup& world) {
                     world.new_group({1, 0});
                   }},
                  {"rank 0 called split(7, 0)", "rank 1 called new_group({1, 0})"});
}

TEST_P(Groups, CallsThatWaitInACircleAreAMismatchThatShowsAll) {
  expect_crossing(*this,
                  {[](ProcessGroup& world) {
                     world.new_group({0, 1});
                   },
                   [](ProcessGroup& world) {
                     world.new_group({1, 2});
                   },
                   [](ProcessGroup& world) {
                     world.new_group({2, 0});
                   }},
                  {"rank 0 called new_group({0, 1})", "rank 1 called new_group({1, 2})",
                   "rank 2 called new_group({2, 0})", "all make them in the same order"});
  // Ranks 0 and 2 are in no circle: they wait for one that is.
  expect_crossing(
      *this,
      {[](ProcessGroup& world) {
         world.new_group({0, 1});
       },
       [](ProcessGroup& world) {
         world.new_group({1, 3}, "a");
       },
       [](ProcessGroup& world) {
         world.new_group({2, 3});
       },
       [](ProcessGroup& world) {
         world.new_group({3, 4}, "b");
       },
       [](ProcessGroup& world) {
         world.new_group({1, 4}, "c");
       }},
      {"new_group({1, 3}, \"a\")", "new_group({3, 4}, \"b\")", "new_group({1, 4}, \"c\")"});
}

// Rank 0 waits for the two that cannot come together, and is told too.
TEST_P(Groups, AMismatchOfOthersEndsTheWaitForThem) {
  expect_crossing(*this,
                  {[](ProcessGroup& world) {
                     world.new_group({0, 1, 2});
                   },
                   [](ProcessGroup& world) {
                     world.new_group({1, 2});
                   },
                   [](ProcessGroup& world) {
                     world.new_group({0, 1, 2});
                   }},
                  {"rank 1 called new_group({1, 2})", "rank 2 called new_group({0, 1, 2})"});
}

TEST_P(Groups, SplitGoesByColorAndKey) {
  run(4, [](ProcessGroup& world) {
    ProcessGroup half = world.split(world.rank() % 2, -world.rank());
    ASSERT_TRUE(half);
    EXPECT_EQ(gathered_ranks(half, world.rank()),
              world.rank() % 2 == 0 ? (std::vector{2, 0}) : (std::vector{3, 1}));
    ProcessGroup again = world.split(0);
    EXPECT_EQ(gathered_ranks(again, world.rank()), (std::vector{0, 1, 2, 3}));
    EXPECT_NE(again.id(), half.id());
  });
}

TEST_P(Groups, SplitWithoutAColorGivesNoGroup) {
  run(3, [](ProcessGroup& world) {
    ProcessGroup part =
        world.split(world.rank() == 1 ? std::optional<int>() : std::optional<int>(7));
    EXPECT_EQ(static_cast<bool>(part), world.rank() != 1);
    if (part) expect_usable(part);
    expect_usable(world);
  });
}

TEST_P(Groups, ASubgroupOutlivesItsParent) {
  run(2, [](ProcessGroup& world) {
    ProcessGroup sub = world.new_group({0, 1});
    world.shutdown();
    world = ProcessGroup();
    expect_usable(sub);
  });
}

TEST_P(Groups, TheStoreOfAGroupHoldsItsOwnKeysOnly) {
  run(2, [](ProcessGroup& world) {
    ProcessGroup sub = world.new_group({0, 1});
    if (world.rank() == 0) {
      world.store().set("key", "world");
      sub.store().set("key", "sub");
    }
    EXPECT_EQ(world.store().get("key"), "world");
    EXPECT_EQ(sub.store().get("key"), "sub");
  });
}

TEST_P(Groups, NoKeyInTheStoreOfAGroupIsOneOfTheLibrary) {
  run(2, [](ProcessGroup& world) {
    if (world.rank() == 0) {
      for (const char* key : {"size", "barrier/1/0", "split/0/0/1"}) {
        EXPECT_EQ(world.store().try_get(key), std::nullopt);
        EXPECT_EQ(world.store().add(key, 1), 1);
      }
      for (const char* key : {"cause", "join/failed", "split/0", "reached/1"})
        world.store().set(key, "the weather");
    }
    world.barrier();
    ProcessGroup again = world.split(0);
    expect_usable(again);
    expect_usable(world);
  });
}

TEST_P(Groups, AllocateGivesAlignedZeroedMemoryThatOpsMayUse) {
  run(2, [](ProcessGroup& group) {
    Buffer<std::int32_t> buffer = group.allocate<std::int32_t>(1000);
    ASSERT_EQ(buffer.size(), 1000u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
    for (std::int32_t& element : buffer) {
      EXPECT_EQ(element, 0);
      element = group.rank() + 1;
    }
    group.all_reduce(buffer);
    EXPECT_EQ(buffer[0], 3);
    EXPECT_EQ(buffer[999], 3);
    const Buffer<double> none = group.allocate<double>(0);
    EXPECT_EQ(none.size(), 0u);
    EXPECT_THROW(group.allocate<double>(std::numeric_limits<std::size_t>::max() / 4),
                 InvalidArgument);
    expect_usable(group);
  });
}

TEST_P(Groups, AllocatedMemoryOfTheOthersIsReachedWhereTheBackendHasSuch) {
  run(3, [](ProcessGroup& group) {
    const Buffer<std::int32_t> buffer = group.allocate<std::int32_t>(2000);
    buffer[0] = buffer[1999] = 10 + group.rank();
    group.barrier();
    for (int rank = 0; rank < group.size(); ++rank) {
      const std::int32_t* const theirs = buffer.peer_data(rank);
      ASSERT_EQ(theirs != nullptr, host_is_native(group));
      if (theirs == nullptr) continue;
      EXPECT_EQ(theirs == buffer.data(), rank == group.rank());
      EXPECT_EQ(theirs[0], 10 + rank);
      EXPECT_EQ(theirs[1999], 10 + rank);
    }
    EXPECT_EQ(Buffer<float>().peer_data(0), nullptr);
    group.barrier();
  });
}

C10D_ON_EACH_BACKEND(Groups);

}}  // namespace c10d::contract
