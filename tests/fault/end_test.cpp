// SPDX-License-Identifier: BSD-3-Clause
// Ranks that end otherwise: exit without shutdown, shutdown while others call, abort, a store that
// dies.
#include "tests/fault/job.h"

namespace c10d::fault { namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class End : public Clean {
 public:
  // Ranks 0 and 1 block in `command`; `then` ends rank 2 and must be named.
  static void expect_all_named(Job& job, const std::string& command, const std::string& then,
                               const std::string& code) {
    job.tell_all_but(2, command);
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(job[rank].hear(), "calling");
    const auto start = steady_clock::now();
    job[2].tell(then);
    for (const Heard& error : job.errors_of_all_but(2)) {
      EXPECT_EQ(error.code, code) << error.what;
      EXPECT_EQ(error.rank, 2) << error.what;
    }
    EXPECT_LE(steady_clock::now() - start, bound(milliseconds(10000))) << command;
  }
};

TEST_P(End, ExitWithoutShutdownIsADeath) {
  Job job(GetParam(), 3);
  expect_all_named(job, "all_reduce 10", "exit", "peer_died");
  EXPECT_EQ(job[2].end(), 0);
}

TEST_P(End, ShutdownWhileOthersCallIsALeave) {
  for (const char* command : {"all_reduce 10", "async 10", "monitored_barrier"}) {
    Job job(GetParam(), 3);
    expect_all_named(job, command, "shutdown", "peer_left");
    EXPECT_EQ(job[2].hear(), "left");
  }
}

// Its connections close before anybody looks whether it left.
TEST_P(End, AnOrderlyEndWhileOthersReceiveIsALeave) {
  Job job(GetParam(), 3);
  job.tell_all_but(2, "recv 2");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(job[rank].hear(), "calling");
  job[2].tell("shutdown");
  EXPECT_EQ(job[2].hear(), "left");
  EXPECT_EQ(job[2].end(), 0);
  for (const Heard& error : job.errors_of_all_but(2)) {
    EXPECT_EQ(error.code, "peer_left") << error.what;
    EXPECT_EQ(error.rank, 2) << error.what;
  }
}

TEST_P(End, OrderlyEndsAreQuiet) {
  Job job(GetParam(), 3);
  job.tell_all_but(-1, "all_reduce 10");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job[rank].hear_of("ok"), "ok");
  for (int rank = 0; rank < 3; ++rank) {  // one after the other: nobody needs the others
    job[rank].tell("shutdown");
    EXPECT_EQ(job[rank].hear(), "left");
    EXPECT_EQ(job[rank].end(), 0);
  }
}

TEST_P(End, AbortEndsBlockedRanksEverywhere) {
  Job job(GetParam(), 3);
  expect_all_named(job, "all_reduce 1000000", "abort", "revoked");
}

TEST_P(End, AbortByABlockedRankEndsItsOwnOpToo) {
  Job job(GetParam(), 3);
  job.tell_all_but(2, "all_reduce 1000000");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(job[rank].hear(), "calling");
  const auto start = steady_clock::now();
  job[0].tell("abort");
  for (const Heard& error : job.errors_of_all_but(2)) {
    EXPECT_EQ(error.code, "revoked") << error.what;
    EXPECT_EQ(error.rank, 0) << error.what;
  }
  EXPECT_LE(steady_clock::now() - start, bound(milliseconds(10000)));
}

TEST_P(End, CollectivesGoOnWithoutTheStore) {
  Job job(GetParam(), 3, Rendezvous::store_process);
  job.kill_store();
  for (int round = 0; round < 3; ++round) {
    job.tell_all_but(-1, "all_reduce 100000");
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job[rank].hear_of("ok"), "ok");
  }
  const auto start = steady_clock::now();
  for (int rank = 0; rank < 3; ++rank) {
    job[rank].tell("shutdown");
    EXPECT_EQ(job[rank].hear(), "left");
    EXPECT_EQ(job[rank].end(), 0);
  }
  EXPECT_LE(steady_clock::now() - start, bound(std::chrono::seconds(30)));
}

C10D_ON_EACH_BACKEND(End);

}}  // namespace c10d::fault
