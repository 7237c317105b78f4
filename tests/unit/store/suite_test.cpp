// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "tests/unit/store/kinds.h"

namespace c10d::test { namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using Keys = std::vector<std::string>;

class StoreSuite : public testing::TestWithParam<StoreKind> {
 protected:
  std::shared_ptr<Store> open() { return open_(); }

  OpenStore open_ = GetParam().make();
  std::shared_ptr<Store> store_ = open();
};

TEST_P(StoreSuite, KeepsBytes) {
  const std::string bytes("\0\xff\n", 3);
  store_->set("key", bytes);
  EXPECT_EQ(open()->get("key"), bytes);
  store_->set("key", "");
  EXPECT_EQ(store_->get("key"), "");
  store_->set("-key with spaces", "x");
  EXPECT_EQ(store_->try_get("-key with spaces"), "x");
  EXPECT_EQ(store_->try_get("other"), std::nullopt);
}

TEST_P(StoreSuite, GetWaitsForTheKey) {
  std::jthread setter([other = open()] { other->set("late", "value"); });
  EXPECT_EQ(store_->get("late"), "value");
}

TEST_P(StoreSuite, TimeoutNamesTheMissingKeys) {
  store_->set("there", "x");
  const Keys keys = {"there", "absent one", "absent two"};
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { store_->get("absent one", 100ms); }, [&] { store_->wait(keys, 100ms); },
           [&] { store_->multi_get(keys, 100ms); }, [&] { store_->pop("absent one", 100ms); }}) {
    const auto start = steady_clock::now();
    const Failure failure = failure_of(call);
    const auto took = steady_clock::now() - start;
    EXPECT_EQ(failure.code, Code::timed_out);
    // A server that gets no CPU for longer than a client is patient says nothing.
    if (failure.message.find("did not answer before the deadline") != std::string::npos) {
      EXPECT_GE(took, 1s) << "the client's patience";
      continue;
    }
    EXPECT_NE(failure.message.find("absent one'"), std::string::npos) << failure.message;
    EXPECT_EQ(failure.message.find("there'"), std::string::npos) << failure.message;
    EXPECT_GE(took, 100ms);
    EXPECT_LT(took, 25s) << "the store's own timeout";
  }
  EXPECT_THROW(store_->wait(keys, 0ms), DistTimeoutError);
}

TEST_P(StoreSuite, TheStoresOwnTimeoutCounts) {
  store_->set_timeout(50ms);
  EXPECT_EQ(store_->timeout(), 50ms);
  EXPECT_THROW(store_->get("absent"), DistTimeoutError);
}

TEST_P(StoreSuite, AddReturnsTheSum) {
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(store_->add("n", -7), -2);
  EXPECT_EQ(store_->get("n"), "-2");
  store_->set("n", "40");
  EXPECT_EQ(store_->add("n", 2), 42);
}

TEST_P(StoreSuite, AddRefusesWhatIsNoNumber) {
  store_->set("text", "12x");
  EXPECT_EQ(failure_of([&] { store_->add("text", 1); }).code, Code::store_error);
  EXPECT_EQ(store_->get("text"), "12x");
  const auto max = std::numeric_limits<std::int64_t>::max();
  store_->set("max", std::to_string(max));
  EXPECT_EQ(failure_of([&] { store_->add("max", 1); }).code, Code::store_error);
  EXPECT_EQ(store_->add("max", -1), max - 1);
}

TEST_P(StoreSuite, CompareSet) {
  EXPECT_EQ(store_->compare_set("k", "x", "y"), std::nullopt);  // absent, but a value was expected
  EXPECT_EQ(store_->try_get("k"), std::nullopt);
  EXPECT_EQ(store_->compare_set("k", std::nullopt, "a"), "a");  // absent, as expected
  EXPECT_EQ(store_->compare_set("k", std::nullopt, "b"), "a");  // there, but expected absent
  EXPECT_EQ(store_->compare_set("k", "wrong", "b"), "a");
  EXPECT_EQ(store_->compare_set("k", "a", "b"), "b");
  EXPECT_EQ(store_->get("k"), "b");
}

TEST_P(StoreSuite, CheckAppendDeleteCount) {
  const std::size_t before = store_->num_keys();
  const Keys both = {"a", "b"};
  EXPECT_EQ(store_->append("a", "one"), 3U);
  EXPECT_EQ(store_->append("a", "two"), 6U);
  EXPECT_FALSE(store_->check(both));
  store_->set("b", "x");
  EXPECT_TRUE(store_->check(both));
  EXPECT_TRUE(store_->check({}));
  EXPECT_EQ(store_->num_keys(), before + 2);
  EXPECT_TRUE(store_->delete_key("a"));
  EXPECT_FALSE(store_->delete_key("a"));
  EXPECT_EQ(store_->num_keys(), before + 1);
  EXPECT_EQ(open()->try_get("a"), std::nullopt);
}

TEST_P(StoreSuite, MultiSetAndGet) {
  const Keys keys = {"x", "y", "z"};
  const Keys values = {"1", "", "333"};
  store_->multi_set(keys, values);
  EXPECT_EQ(open()->multi_get(keys), values);
  EXPECT_TRUE(store_->multi_get({}).empty());
  store_->multi_set({}, {});
  EXPECT_THROW(store_->multi_set(keys, Keys{"1"}), InvalidArgument);
}

TEST_P(StoreSuite, MultiGetWaitsForAll) {
  const Keys keys = {"x", "y", "z"};
  std::jthread setter([&, other = open()] {
    for (const char* key : {"z", "x", "y"}) other->set(key, key);
  });
  EXPECT_EQ(store_->multi_get(keys), keys);
}

TEST_P(StoreSuite, QueuesAreFirstInFirstOut) {
  store_->push("q", "1");
  store_->push("q", "");
  store_->push("q", "3");
  EXPECT_TRUE(store_->check(Keys{"q"}));
  const auto other = open();
  EXPECT_EQ(other->pop("q"), "1");
  EXPECT_EQ(other->pop("q"), "");
  EXPECT_EQ(other->pop("q"), "3");
  EXPECT_FALSE(store_->check(Keys{"q"}));
  std::jthread pusher([other] { other->push("q", "late"); });
  EXPECT_EQ(store_->pop("q"), "late");
}

TEST_P(StoreSuite, QueuesAndValuesDoNotMix) {
  store_->push("q", "1");
  store_->set("v", "1");
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { store_->get("q"); }, [&] { store_->try_get("q"); }, [&] { store_->set("q", "x"); },
           [&] { store_->add("q", 1); }, [&] { store_->append("q", "x"); },
           [&] { store_->compare_set("q", std::nullopt, "x"); },
           [&] {
             store_->multi_set(Keys{"new", "q"}, Keys{"1", "2"});
           },
           [&] { store_->push("v", "x"); }, [&] { store_->pop("v"); }}) {
    EXPECT_EQ(failure_of(call).code, Code::store_error);
  }
  EXPECT_FALSE(store_->check(Keys{"new"}));  // all or nothing
  EXPECT_EQ(store_->pop("q"), "1");
  EXPECT_EQ(store_->get("v"), "1");
  store_->push("q", "2");
  EXPECT_TRUE(store_->delete_key("q"));
  EXPECT_FALSE(store_->check(Keys{"q"}));
}

TEST_P(StoreSuite, EveryElementIsPoppedOnce) {
  constexpr int kThreads = 4;
  const int each = GetParam().rounds / 10;
  std::atomic<int> sum = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, other = open()] {
      for (int i = 0; i < each; ++i) sum += std::stoi(other->pop("q"));
    });
  for (int i = 1; i <= kThreads * each; ++i) store_->push("q", std::to_string(i));
  threads.clear();
  EXPECT_EQ(sum, kThreads * each * (kThreads * each + 1) / 2);
}

TEST_P(StoreSuite, BarrierHoldsUntilAllAreThereRoundAfterRound) {
  constexpr int kThreads = 4;
  const int rounds = GetParam().rounds / 20;
  std::atomic<int> arrived = 0;
  std::atomic<int> early = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, other = open()] {
      for (int round = 1; round <= rounds; ++round) {
        ++arrived;
        other->barrier("b", kThreads);
        if (arrived < kThreads * round) ++early;
      }
    });
  threads.clear();
  EXPECT_EQ(early, 0);
}

TEST_P(StoreSuite, BarrierWithdrawsOnTimeout) {
  EXPECT_EQ(failure_of([&] { store_->barrier("b", 2, 50ms); }).code, Code::timed_out);
  // Had the arrival stayed, one caller would be enough now.
  EXPECT_THROW(open()->barrier("b", 2, 50ms), DistTimeoutError);
  EXPECT_THROW(store_->barrier("b", 0), InvalidArgument);
  store_->barrier("b", 1);
  std::jthread other([&, user = open()] { user->barrier("b", 2); });
  store_->barrier("b", 2);
}

TEST_P(StoreSuite, ClientsCountTogether) {
  constexpr int kClients = 16;
  const int rounds = GetParam().rounds;
  std::vector<std::jthread> threads;
  for (int client = 0; client < kClients; ++client)
    threads.emplace_back([&, client, user = open()] {
      const std::string mine = "mine" + std::to_string(client);
      for (int i = 0; i < rounds; ++i) {
        user->add("n", 1);
        if (i % 16 != 0) continue;
        user->set(mine, std::to_string(i));
        EXPECT_EQ(user->get(mine), std::to_string(i));
      }
    });
  threads.clear();
  EXPECT_EQ(store_->get("n"), std::to_string(kClients * rounds));
}

TEST_P(StoreSuite, ABlockedWaitDelaysNobody) {
  // The same store object, so the same connection.
  std::vector<std::jthread> blocked;
  for (int t = 0; t < 8; ++t) blocked.emplace_back([&] { EXPECT_EQ(store_->get("last"), "x"); });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(store_->add("n", 1), i + 1);
  store_->set("last", "x");
}

TEST_P(StoreSuite, LimitsHaveTheirOwnErrors) {
  const StoreLimits limits;
  const Failure key = failure_of([&] { store_->set(std::string(limits.key_bytes + 1, 'k'), "x"); });
  EXPECT_EQ(key.code, Code::store_limit);
  EXPECT_NE(key.message.find("key_bytes"), std::string::npos) << key.message;
  const std::string big(limits.value_bytes + 1, 'v');
  const Failure value = failure_of([&] { store_->set("k", big); });
  EXPECT_EQ(value.code, Code::store_limit);
  EXPECT_NE(value.message.find("value_bytes"), std::string::npos) << value.message;
  const std::string largest(limits.value_bytes, 'v');
  store_->set("k", largest);
  EXPECT_EQ(open()->get("k"), largest);
  EXPECT_EQ(failure_of([&] { store_->append("k", "x"); }).code, Code::store_limit);
  EXPECT_EQ(store_->get("k").size(), limits.value_bytes);
}

INSTANTIATE_TEST_SUITE_P(All, StoreSuite, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

class SmallStore : public testing::TestWithParam<bool> {
 protected:
  static std::shared_ptr<Store> make(StoreLimits limits) {
    if (GetParam()) return tcp_server(limits);
    return make_hash_store(30s, limits);
  }
};

TEST_P(SmallStore, RunsFullOfBytesAndRecovers) {
  const auto store = make({.total_bytes = 100});
  store->set("a", std::string(60, 'x'));
  const Failure failure = failure_of([&] { store->set("b", std::string(60, 'x')); });
  EXPECT_EQ(failure.code, Code::store_limit);
  EXPECT_NE(failure.message.find("total_bytes"), std::string::npos) << failure.message;
  EXPECT_THROW(store->append("a", std::string(60, 'x')), DistStoreError);
  EXPECT_THROW(store->push("q", std::string(60, 'x')), DistStoreError);
  EXPECT_THROW(store->multi_set(Keys{"a", "b"}, Keys{std::string(50, 'x'), std::string(50, 'x')}),
               DistStoreError);
  store->set("a", "");
  store->set("b", std::string(60, 'x'));
  EXPECT_TRUE(store->delete_key("b"));
  for (int i = 0; i < 100; ++i) {
    store->push("q", std::string(50, 'x'));
    store->pop("q");
  }
}

TEST_P(SmallStore, RunsFullOfKeys) {
  const auto store = make({.keys = 2});
  store->multi_set(Keys{"a", "b"}, Keys{"", ""});
  const Failure failure = failure_of([&] { store->add("c", 1); });
  EXPECT_EQ(failure.code, Code::store_limit);
  EXPECT_NE(failure.message.find("keys = 2"), std::string::npos) << failure.message;
  store->set("a", "still writable");
  EXPECT_THROW(store->push("q", "x"), DistStoreError);
}

TEST_P(SmallStore, RefusesAnAnswerThatIsTooLong) {
  const auto store = make({.value_bytes = 100, .output_queue_bytes = 250});
  const Keys keys = {"a", "b", "c"};
  for (const std::string& key : keys) store->set(key, std::string(100, 'x'));
  const Failure failure = failure_of([&] { store->multi_get(keys); });
  EXPECT_EQ(failure.code, Code::store_limit);
  EXPECT_NE(failure.message.find("output_queue_bytes"), std::string::npos) << failure.message;
  EXPECT_EQ(store->multi_get(Keys{"a", "b"}).size(), 2U);
}

TEST_P(SmallStore, TakesLimitsThatAreAsLargeAsNumbersGo) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  const std::string value(100'000, 'x');
  for (const StoreLimits& limits : {StoreLimits{.output_queue_bytes = kMost},
                                    StoreLimits{.key_bytes = kMost, .value_bytes = kMost}}) {
    const auto store = make(limits);
    store->set("k", value);
    EXPECT_EQ(store->get("k"), value);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SmallStore, testing::Bool(),
                         [](const auto& tcp) { return tcp.param ? "tcp" : "hash"; });

TEST(FileStore, AForkedChildLeavesTheParentsStoreAlone) {
  const TemporaryFile file;
  auto first = make_file_store(file.path(), 2, 30s);
  auto second = make_file_store(file.path(), 2, 30s);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(100);  // should it hang
    bool refused = false;
    try {
      first->set("k", "child");
    } catch (const DistBackendError& error) {
      refused = error.code() == Code::forked_child;
    }
    first.reset();
    second.reset();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(::access(file.path().c_str(), F_OK), 0);
  first->set("k", "v");
  EXPECT_EQ(second->get("k"), "v");
}

TEST(FileStore, TheLastUserRemovesTheFile) {
  const TemporaryFile file;
  auto first = make_file_store(file.path(), 2, 5s);
  auto second = make_file_store(file.path(), 2, 5s);
  EXPECT_EQ(failure_of([&] { make_file_store(file.path(), 2, 5s); }).code, Code::store_error);
  first->set("k", "v");
  first.reset();
  EXPECT_EQ(::access(file.path().c_str(), F_OK), 0);
  EXPECT_EQ(second->get("k"), "v");
  second.reset();
  EXPECT_NE(::access(file.path().c_str(), F_OK), 0);
  EXPECT_EQ(make_file_store(file.path(), 1, 5s)->num_keys(), 0U);
}

// One that was no rank of the job, or a rank that comes again before the others have left.
TEST(FileStore, WhoLeftMakesRoom) {
  const TemporaryFile file;
  const auto join = [&] { return make_file_store(file.path(), 2, 5s); };
  auto first = join();
  join();
  auto second = join();
  first->set("k", "v");
  EXPECT_EQ(failure_of(join).code, Code::store_error);
  for (int round = 0; round < 2; ++round) {  // in turns, so that the file is never without a user
    (round == 0 ? first : second).reset();
    (round == 0 ? first : second) = join();
    EXPECT_EQ(failure_of(join).code, Code::store_error);
  }
  EXPECT_EQ(first->get("k"), "v");
  first.reset();
  EXPECT_EQ(::access(file.path().c_str(), F_OK), 0);
  second.reset();
  EXPECT_NE(::access(file.path().c_str(), F_OK), 0);
}

// A store that does not answer, as one whose server is stopped.
TEST(PrefixStore, ItsOwnTimeoutAndTheOneGivenEndEveryCall) {
  const TemporaryFile file;
  const auto slow = make_file_store(file.path(), 0, 1h);
  const auto store = make_prefix_store("p", slow);
  const Keys keys = {"k"};
  const auto calls = [&](std::optional<Duration> timeout) {
    return std::vector<std::function<void()>>{
        [=] { store->set("k", "v", timeout); },
        [=] { store->get("k", timeout); },
        [=] { store->try_get("k", timeout); },
        [=] { store->add("k", 1, timeout); },
        [=] { store->compare_set("k", std::nullopt, "v", timeout); },
        [=] { store->wait(keys, timeout); },
        [=] { store->check(keys, timeout); },
        [=] { store->append("k", "v", timeout); },
        [=] { store->multi_get(keys, timeout); },
        [=] { store->multi_set(keys, keys, timeout); },
        [=] { store->delete_key("k", timeout); },
        [=] { store->num_keys(timeout); },
        [=] { store->push("k", "v", timeout); },
        [=] { store->pop("k", timeout); },
        [=] { store->barrier("k", 2, timeout); }};
  };
  {
    const HeldLock lock(file.path());
    for (const auto& call : calls(5ms)) EXPECT_EQ(failure_of(call).code, Code::timed_out);
    store->set_timeout(5ms);
    for (const auto& call : calls(std::nullopt)) EXPECT_EQ(failure_of(call).code, Code::timed_out);
  }
  EXPECT_EQ(slow->timeout(), 1h);  // other users of the store keep theirs
}

TEST(FileStore, ABarrierWithdrawsThoughTheLockIsTakenAtItsDeadline) {
  const TemporaryFile file;
  const auto store = make_file_store(file.path(), 0, 30s);
  const auto length = [&] { return std::filesystem::file_size(file.path()); };
  const auto before = length();
  std::atomic<bool> ended = false;
  std::jthread late([&] {
    EXPECT_EQ(failure_of([&] { store->barrier("b", 2, 100ms); }).code, Code::timed_out);
    ended = true;
  });
  while (length() == before) std::this_thread::yield();  // until it has arrived
  {
    const HeldLock lock(file.path());
    const auto end = steady_clock::now() + 300ms;
    while (!ended && steady_clock::now() < end) std::this_thread::yield();
    if (steady_clock::now() > end + 1s) GTEST_SKIP() << "held longer than any patience";
  }
  late.join();
  EXPECT_THROW(make_file_store(file.path(), 0, 30s)->barrier("b", 2, 20ms), DistTimeoutError);
}

TEST(FileStore, DropsARecordWhoseWriterWasKilled) {
  const TemporaryFile file;
  const auto store = make_file_store(file.path(), 0, 5s);
  store->set("k", "v");
  std::string record;
  {
    FILE* whole = fopen(file.path().c_str(), "rb");
    char bytes[4096];
    record.assign(bytes, fread(bytes, 1, sizeof bytes, whole));
    fclose(whole);
  }
  // Every prefix of a record, as a writer may leave it.
  for (std::size_t cut = 1; cut < 40; ++cut) {
    FILE* torn = fopen(file.path().c_str(), "ab");
    fwrite(record.data(), 1, cut, torn);
    fclose(torn);
    EXPECT_EQ(make_file_store(file.path(), 0, 5s)->get("k"), "v");
    store->set("k2", "v");
  }
  EXPECT_EQ(store->num_keys(), 2U);
}

TEST(FileStore, AFileThatMayNotGrowIsANamedErrorAndStaysSound) {
  const TemporaryFile file;
  const auto store = make_file_store(file.path(), 0, 5s);
  store->set("k", "v");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {.rlim_cur = std::filesystem::file_size(file.path()) + 100,
                        .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::optional<Failure> failure;
  try {
    store->set("large", std::string(4096, 'x'));
  } catch (const DistError& error) {
    failure = error.failure();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Code::store_error);
  EXPECT_NE(failure->message.find("ulimit -f"), std::string::npos) << failure->message;
  EXPECT_EQ(std::filesystem::file_size(file.path()), small.rlim_cur) << "nothing is torn";
  const auto other = make_file_store(file.path(), 0, 5s);
  EXPECT_FALSE(other->check(Keys{"large"}));
  store->set("k2", "v");
  EXPECT_EQ(other->multi_get(Keys{"k", "k2"}), (Keys{"v", "v"}));
}

TEST(FileStore, RefusesAFileThatIsNoStore) {
  const TemporaryFile file;
  FILE* text = fopen(file.path().c_str(), "wb");
  fputs("this is a text that somebody else wrote\n", text);
  fclose(text);
  EXPECT_EQ(failure_of([&] { make_file_store(file.path(), 0, 5s); }).code, Code::corrupt);
}

}}  // namespace c10d::test
