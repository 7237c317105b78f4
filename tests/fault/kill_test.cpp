// SPDX-License-Identifier: BSD-3-Clause
// SIGKILL of one of four ranks before, during and after an op: the other three throw an error that
// names it, within a second by this process's clock.
#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/fault/job.h"

namespace c10d::fault { namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr milliseconds kPromise{1000};      // of the median
constexpr milliseconds kBound{10000};       // of each
constexpr const char* kLarge = " 4194304";  // elements: 16 MiB

class Kill : public Clean {
 public:
  // Kills the victim now; the others are in an op, or enter one as soon as they are told `then`.
  static void expect_named(Job& job, int victim, const std::string& when,
                           const std::string& then = {}) {
    const pid_t pid = job[victim].pid();
    const auto start = steady_clock::now();
    job[victim].signal(SIGKILL);
    if (!then.empty()) job.tell_all_but(victim, then);
    const std::vector<Heard> errors = job.errors_of_all_but(victim);
    const auto taken = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
    std::printf("%-6s rank %d killed %-24s named by %zu ranks after %4lld ms (bound %lld)\n",
                GetParam().c_str(), victim, when.c_str(), errors.size(),
                static_cast<long long>(taken.count()),
                static_cast<long long>(bound(kPromise).count()));
    EXPECT_LE(taken, bound(kBound)) << when;
    taken_.push_back(taken);
    EXPECT_EQ(errors.size(), kRanks - 1u);
    for (const Heard& error : errors) {
      EXPECT_EQ(error.code, "peer_died") << error.what;
      EXPECT_EQ(error.rank, victim) << error.what;
      EXPECT_EQ(error.pid, pid) << error.what;
      EXPECT_NE(error.what.find("rank " + std::to_string(victim)), std::string::npos);
    }
    // Later calls: the same cause.
    job.tell_all_but(victim, "all_reduce 4");
    for (const Heard& error : job.errors_of_all_but(victim)) EXPECT_EQ(error.rank, victim);
  }

  static void TearDownTestSuite() {
    ASSERT_FALSE(taken_.empty());
    std::nth_element(taken_.begin(), taken_.begin() + taken_.size() / 2, taken_.end());
    EXPECT_LE(taken_[taken_.size() / 2], bound(kPromise)) << "the median";
  }

  static void enter_all_but(Job& job, int victim, const std::string& command) {
    job.tell_all_but(victim, command);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(job[rank].hear(), "calling");
    }
  }

 private:
  static inline std::vector<milliseconds> taken_;
};

TEST_P(Kill, BeforeTheOp) {
  for (const std::string command : {"all_reduce 10", "async 10", "monitored_barrier"}) {
    for (const int victim : {0, 3}) {
      Job job(GetParam(), kRanks);
      job.expect_no_named_memory();
      enter_all_but(job, victim, command);
      expect_named(job, victim, "before " + command);
      if (HasFailure()) return;  // each takes long to fail
    }
  }
}

TEST_P(Kill, WhileOthersReceiveFromIt) {
  Job job(GetParam(), kRanks);
  enter_all_but(job, 1, "recv 1");
  expect_named(job, 1, "before recv");
}

TEST_P(Kill, DuringALargeOp) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 5; ++round) {
    const int victim = static_cast<int>(random() % kRanks);
    Job job(GetParam(), kRanks);
    for (int rank = 0; rank < kRanks; ++rank) job[rank].tell(std::string("loop") + kLarge);
    EXPECT_EQ(job[victim].hear_of("ok"), "ok");
    // Anywhere in the ops that follow.
    const auto moment = steady_clock::now() + std::chrono::microseconds(random() % 50000);
    while (steady_clock::now() < moment) {
    }
    expect_named(job, victim, "during all_reduce");
    if (HasFailure()) return;
  }
}

TEST_P(Kill, DuringSmallOps) {
  Job job(GetParam(), kRanks);
  for (int rank = 0; rank < kRanks; ++rank) job[rank].tell("loop 1");
  EXPECT_EQ(job[2].hear_of("ok"), "ok");
  expect_named(job, 2, "during small all_reduces");
}

TEST_P(Kill, AfterAnOpThatAllHaveFinished) {
  Job job(GetParam(), kRanks);
  job.tell_all_but(-1, "all_reduce 1000");
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(job[rank].hear_of("ok"), "ok");
  expect_named(job, 1, "after, then all_reduce", "all_reduce 10");
}

// Tearing down memory comes before a process's sockets close: a large victim is noticed late by
// those who listen to sockets alone.
TEST_P(Kill, AVictimThatHoldsAGibibyte) {
  Job job(GetParam(), kRanks);
  job[3].tell("hold 1024");
  EXPECT_EQ(job[3].hear(), "holding");
  enter_all_but(job, 3, "all_reduce 10");
  expect_named(job, 3, "holding 1 GiB");
}

TEST_P(Kill, TwoAtOnceIsOneCauseForAll) {
  Job job(GetParam(), kRanks);
  job.tell_all_but(-1, std::string("loop") + kLarge);
  EXPECT_EQ(job[1].hear_of("ok"), "ok");
  job[1].signal(SIGKILL);
  job[2].signal(SIGKILL);
  const Heard first = parse_error(job[0].hear_of("error"));
  const Heard second = parse_error(job[3].hear_of("error"));
  EXPECT_EQ(first.code, "peer_died") << first.what;
  EXPECT_EQ(first.rank, second.rank);
  EXPECT_TRUE(first.rank == 1 || first.rank == 2) << first.what;
}

C10D_ON_EACH_BACKEND(Kill);

}}  // namespace c10d::fault
