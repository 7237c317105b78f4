// SPDX-License-Identifier: BSD-3-Clause
// Ranks that meet in a store, on what no process group can be made to show.
#include "src/group/bootstrap.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <utility>

#include "src/base/members.h"
#include "src/base/mutex.h"
#include "src/store/key_value_table.h"
#include "src/store/request_store.h"

namespace c10d { namespace {

using namespace std::chrono_literals;

class Rendezvous : public testing::Test {
 protected:
  Failure failure_of(int rank, Duration patience, bool ends_with_rank_0) const {
    try {
      bootstrap({.store = store_,
                 .name = "w",
                 .backend = "native",
                 .rank = rank,
                 .size = 3,
                 .deadline = std::chrono::steady_clock::now() + patience,
                 .ends_with_rank_0 = ends_with_rank_0});
    } catch (const DistError& error) {
      return error.failure();
    }
    ADD_FAILURE() << "rank " << rank << " met the others";
    return {};
  }
  const std::shared_ptr<Store> store_ = make_hash_store(60s);
};

// Who takes the store away with it takes the others along, and says why.
TEST_F(Rendezvous, ThatRank0GivesUpIsOverForAllWhereItServesTheStore) {
  Failure theirs;
  std::thread other([&] { theirs = failure_of(1, 60s, true); });
  store_->wait(std::vector<std::string>{"w.1/rank/1"});
  const Failure mine = failure_of(0, 1ms, true);
  other.join();
  for (const Failure& failure : {mine, theirs}) {
    EXPECT_EQ(failure.code, Code::timed_out);
    EXPECT_EQ(failure.rank, 2);
    EXPECT_NE(failure.message.find("never arrived: 2"), std::string::npos) << failure.message;
  }
}

TEST_F(Rendezvous, ThatAnotherRankGivesUpIsNot) {
  std::thread other([&] { EXPECT_EQ(failure_of(0, 60s, true).code, Code::version_mismatch); });
  store_->wait(std::vector<std::string>{"w.1/rank/0"});
  EXPECT_EQ(failure_of(1, 1ms, true).code, Code::timed_out);
  EXPECT_FALSE(store_->check(std::vector<std::string>{"w.1/failed"}));
  EXPECT_FALSE(store_->check(std::vector<std::string>{"w.1/rank/1"}));
  // Ends the wait.
  store_->set("w.1/parted/1", "");
  store_->set("w.1/parted/2", "");
  store_->set("w.1/rank/1", "x\nx\nx\nx\nx\nx\n1\n");
  store_->set("w.1/rank/2", "x\nx\nx\nx\nx\nx\n1\n");
  other.join();
}

// In which rank 0 takes back that it came as soon as somebody waits for all.
class StoreOfOneThatGivesUp final : public RequestStore<Store> {
 public:
  StoreOfOneThatGivesUp() : RequestStore(60s) {}

 private:
  Reply perform(const Request& request, Deadline) override {
    MutexLock lock(mutex_);
    if (request.op == StoreOp::multi_get)
      table_.apply({.op = StoreOp::delete_key, .keys = {"w.1/rank/0"}});
    const auto reply = table_.apply(request);
    return reply ? *reply : v0::timed_out(table_.missing(request));
  }

  Mutex mutex_;
  Table table_ C10D_GUARDED_BY(mutex_){StoreLimits{}};
};

// All ranks of one start give up at about the same time.
TEST(RendezvousThatFails, WhoCameAndGaveUpIsNotNamedAmongThoseWhoNeverCame) {
  const std::shared_ptr<Store> store = std::make_shared<StoreOfOneThatGivesUp>();
  store->set("w.1/rank/0", "");
  try {
    bootstrap({.store = store,
               .name = "w",
               .backend = "native",
               .rank = 1,
               .size = 3,
               .deadline = std::chrono::steady_clock::now() + 50ms});
    FAIL() << "rank 1 met the others";
  } catch (const DistError& error) {
    EXPECT_EQ(error.failure().rank, 2) << error.what();
    EXPECT_NE(error.failure().message.find("never arrived: 2"), std::string::npos) << error.what();
  }
}

TEST(RendezvousThatFails, ThatRanksCameWithAnotherTokenIsSaid) {
  const auto store = make_tcp_store({.server = true, .token = std::string(32, 'r')});
  EXPECT_THROW(make_tcp_store({.port = store->port(), .token = std::string(32, 'w')}), DistError);
  store->get("c10d/refusals");
  try {
    bootstrap({.store = make_prefix_store("p", store),
               .name = "w",
               .backend = "native",
               .rank = 0,
               .size = 2,
               .deadline = std::chrono::steady_clock::now() + 50ms});
    FAIL() << "rank 0 met the others";
  } catch (const DistError& error) {
    EXPECT_NE(error.failure().message.find(
                  "world size; 1 connection from 127.0.0.1 was refused: another token"),
              std::string::npos)
        << error.what();
  }
}

// Which does not answer the first time that somebody looks who has come.
class StoreThatIsSilentOnce final : public RequestStore<Store> {
 public:
  StoreThatIsSilentOnce() : RequestStore(60s) {}

 private:
  Reply perform(const Request& request, Deadline) override {
    MutexLock lock(mutex_);
    if (request.op == StoreOp::try_get && request.keys[0] == "w.1/rank/0" &&
        std::exchange(is_silent_, false))
      return error_reply(Code::timed_out, "the store did not answer");
    const auto reply = table_.apply(request);
    return reply ? *reply : v0::timed_out(table_.missing(request));
  }

  Mutex mutex_;
  bool is_silent_ C10D_GUARDED_BY(mutex_) = true;
  Table table_ C10D_GUARDED_BY(mutex_){StoreLimits{}};
};

TEST(RendezvousThatFails, AStoreThatAnswersAgainBeforeTheDeadlineIsNoReason) {
  try {
    bootstrap({.store = std::make_shared<StoreThatIsSilentOnce>(),
               .name = "w",
               .backend = "native",
               .rank = 1,
               .size = 2,
               .deadline = std::chrono::steady_clock::now() + 50ms});
    FAIL() << "rank 1 met the others";
  } catch (const DistError& error) {
    EXPECT_NE(error.failure().message.find("never arrived: 0"), std::string::npos) << error.what();
  }
}

// By which ranks of one start know it, and whether one is stopped.
TEST(ProcessStat, IsReadBehindAnyName) {
  std::array<char, 16> name{};
  prctl(PR_SET_NAME, ") T (1) t 2 ");
  const std::string state = process_stat(getpid(), 3);
  prctl(PR_GET_NAME, name.data());
  EXPECT_STREQ(name.data(), ") T (1) t 2 ");
  EXPECT_EQ(state, "R");
  EXPECT_EQ(process_stat(getpid(), 4), std::to_string(getppid()));
  EXPECT_EQ(process_stat(0, 3), "");
}

}}  // namespace c10d
