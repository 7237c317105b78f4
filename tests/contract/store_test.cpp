// SPDX-License-Identifier: BSD-3-Clause
// store.h: what tests/unit/store/suite_test.cpp does not ask of every kind of store.
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/contract/ranks.h"
#include "tests/temporary_directory.h"

namespace c10d::contract { namespace {

using namespace std::chrono_literals;
using Keys = std::vector<std::string>;

TEST(PrefixStore, HasEveryKeyBehindThePrefixAndASlash) {
  const auto whole = make_hash_store(kTimeout);
  const auto ab = make_prefix_store("ab", whole);
  ab->set("c", "1");
  EXPECT_EQ(whole->get("ab/c"), "1");
  EXPECT_EQ(make_prefix_store("a", whole)->try_get("bc"), std::nullopt);
  make_prefix_store("x", ab)->multi_set(Keys{"y", "z"}, Keys{"2", "3"});
  EXPECT_EQ(whole->multi_get(Keys{"ab/x/y", "ab/x/z"}), (Keys{"2", "3"}));
  EXPECT_EQ(ab->add("n", 4), 4);
  EXPECT_EQ(whole->add("ab/n", 1), 5);
  ab->push("q", "first");
  EXPECT_EQ(whole->pop("ab/q"), "first");
  EXPECT_EQ(whole->append("ab/c", "0"), 2u);
  EXPECT_EQ(ab->compare_set("c", "10", "11"), "11");
  EXPECT_TRUE(whole->delete_key("ab/c"));
  EXPECT_FALSE(ab->check(Keys{"c"}));
  std::jthread other([&] { whole->barrier("ab/b", 2); });
  ab->barrier("b", 2);
}

TEST(PrefixStore, CountsTheKeysOfTheWholeStore) {
  const auto whole = make_hash_store(kTimeout);
  whole->set("elsewhere", "");
  const auto part = make_prefix_store("p", whole);
  part->set("here", "");
  EXPECT_EQ(part->num_keys(), 2u);
}

TEST(Stores, QueuesAreKeysWhileTheyHoldSomethingAndBarriersNever) {
  const auto store = make_hash_store(kTimeout);
  store->push("q", "1");
  EXPECT_EQ(store->num_keys(), 1u);
  store->pop("q");
  EXPECT_EQ(store->num_keys(), 0u);
  std::jthread other([&] { store->barrier("b", 2); });
  store->barrier("b", 2);
  EXPECT_EQ(store->num_keys(), 0u);
  EXPECT_EQ(store->try_get("b"), std::nullopt);
}

TEST(Stores, TakeListsOfKeys) {
  const auto store = make_hash_store();
  EXPECT_FALSE(store->check({"a", "b"}));
  store->set("a", "1");
  store->set("b", "2");
  store->wait({"a", "b"});
  EXPECT_TRUE(store->check({"a", "b"}));
  EXPECT_EQ(store->multi_get({"b", "a"}), (std::vector<std::string>{"2", "1"}));
}

TEST(Stores, SetAllOfSeveralPairsOrNone) {
  const auto store = make_hash_store(kTimeout, {.total_bytes = 20, .keys = 3});
  store->multi_set(Keys{"a", "a", "b"}, Keys{"1", "2", "3"});
  EXPECT_EQ(store->multi_get(Keys{"a", "b"}), (Keys{"2", "3"})) << "the last of a key counts";
  EXPECT_EQ(code_of([&] {
              store->multi_set(Keys{"a", "c", "d"}, Keys{"4", "", ""});
            }),
            Code::store_limit);
  EXPECT_EQ(code_of([&] {
              store->multi_set(Keys{"a", "b"}, Keys{"5", std::string(18, 'x')});
            }),
            Code::store_limit);
  EXPECT_EQ(store->multi_get(Keys{"a", "b"}), (Keys{"2", "3"}));
  EXPECT_EQ(store->num_keys(), 2u);
  // What fits at the end fits, also where a first write alone would not.
  store->set("a", std::string(16, 'x'));
  store->multi_set(Keys{"b", "a"}, Keys{std::string(16, 'y'), ""});
  EXPECT_EQ(store->get("b"), std::string(16, 'y'));
}

TEST(Stores, RefusedWritesLeaveTheValueAsItWas) {
  const auto store = make_hash_store(kTimeout, {.value_bytes = 8, .total_bytes = 12});
  store->set("a", "99999");
  EXPECT_EQ(code_of([&] { store->append("a", "9999"); }), Code::store_limit);
  EXPECT_EQ(code_of([&] { store->set("b", "123456"); }), Code::store_limit);
  EXPECT_EQ(code_of([&] { store->add("c", 1'000'000); }), Code::store_limit);
  EXPECT_EQ(code_of([&] { store->compare_set("b", std::nullopt, "123456"); }), Code::store_limit);
  EXPECT_EQ(code_of([&] { store->push("b", "123456"); }), Code::store_limit);
  EXPECT_EQ(store->get("a"), "99999");
  EXPECT_EQ(store->num_keys(), 1u);
  EXPECT_EQ(store->add("a", 1), 100000);
}

// Of two that come with another size the second is refused, and then helps the first to pass.
TEST(Stores, ABarrierHasOneSize) {
  const auto store = make_hash_store(kTimeout);
  std::atomic<int> refused{0};
  run_threads(2, [&](int i) {
    const int size = 2 + i;
    try {
      store->barrier("b", size);
    } catch (const DistStoreError& error) {
      EXPECT_EQ(error.code(), Code::store_error);
      ++refused;
      std::jthread third;
      if (size == 2) third = std::jthread([&] { store->barrier("b", 3); });
      store->barrier("b", size == 2 ? 3 : 2);
    }
  });
  EXPECT_EQ(refused, 1);
}

TEST(Stores, WithNoTimeLeftDoWhatNeedsNoWaiting) {
  const auto store = make_hash_store(kTimeout);
  for (const Duration none : {Duration(0s), Duration(-1h)}) {
    store->set("k", "v", none);
    EXPECT_EQ(store->get("k", none), "v");
    store->wait(Keys{"k"}, none);
    store->push("q", "e", none);
    EXPECT_EQ(store->pop("q", none), "e");
    store->barrier("b", 1, none);
    EXPECT_EQ(code_of([&] { store->get("absent", none); }), Code::timed_out);
    EXPECT_EQ(code_of([&] { store->pop("q", none); }), Code::timed_out);
    EXPECT_EQ(code_of([&] { store->barrier("b", 2, none); }), Code::timed_out);
  }
}

TEST(FileStore, OfNoSizeIsNeverRemoved) {
  const TemporaryDirectory folder;
  const std::string path = folder / "store";
  make_file_store(path, 0, kTimeout)->set("k", "v");
  EXPECT_EQ(make_file_store(path, 0, kTimeout)->get("k"), "v");
  EXPECT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(rmdir(folder.path().c_str()), 0);
}

TEST(TcpStore, KnowsItsPlace) {
  const auto server = make_tcp_store({.server = true, .timeout = kTimeout});
  EXPECT_EQ(server->host(), "127.0.0.1");
  EXPECT_NE(server->port(), 0);
  const auto client = make_tcp_store({.port = server->port(), .timeout = 7s});
  EXPECT_EQ(client->port(), server->port());
  EXPECT_EQ(client->host(), "127.0.0.1");
  EXPECT_EQ(client->timeout(), Duration(7s));
  EXPECT_EQ(make_hash_store()->timeout(), kDefaultStoreTimeout);
}

}}  // namespace c10d::contract
