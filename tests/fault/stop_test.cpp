// SPDX-License-Identifier: BSD-3-Clause
// SIGSTOP: a rank that lives but does nothing is named when the deadline passes, and is waited for
// until then.
#include "tests/fault/job.h"

namespace c10d::fault { namespace {

class Stop : public Clean {};

void stop(Child& rank) {
  rank.signal(SIGSTOP);
  rank.await_stop();
}

// Of several ranks that are missing, since one more may be late, the first is named: rank 0 it is.
TEST_P(Stop, TheDeadlineNamesTheStoppedRank) {
  Job job(GetParam(), 4);
  stop(job[0]);
  job.tell_all_but(0, "all_reduce 1000 3000");
  for (const Heard& error : job.errors_of_all_but(0)) {
    EXPECT_EQ(error.code, "timed_out") << error.what;
    EXPECT_EQ(error.rank, 0) << error.what;
    EXPECT_EQ(error.pid, job[0].pid()) << error.what;
  }
  job[0].signal(SIGCONT);
  job[0].tell("all_reduce 1000");
  const Heard late = parse_error(job[0].hear_of("error"));
  EXPECT_EQ(late.code, "timed_out") << "the same cause: " << late.what;
  EXPECT_EQ(late.rank, 0);
}

TEST_P(Stop, InTheMiddleOfAnOpTheDeadlineNamesIt) {
  Job job(GetParam(), 3);
  job.tell_all_but(-1, "loop 1048576 10000");
  EXPECT_EQ(job[0].hear_of("ok"), "ok");
  stop(job[0]);
  for (const Heard& error : job.errors_of_all_but(0)) {
    EXPECT_EQ(error.code, "timed_out") << error.what;
    EXPECT_EQ(error.rank, 0) << error.what;
  }
}

TEST_P(Stop, ContinuedBeforeTheDeadlineTheResultIsRight) {
  Job job(GetParam(), 4);
  stop(job[0]);
  job.tell_all_but(-1, "all_reduce 1000000");
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(job[rank].hear(), "calling");
  job[0].signal(SIGCONT);
  EXPECT_EQ(job[0].hear(), "calling");
  job.expect_ok_from_all();
}

TEST_P(Stop, InTheMiddleOfOpsAndContinuedTheResultsStayRight) {
  Job job(GetParam(), 3);
  job.tell_all_but(-1, "loop 1048576");
  for (int round = 0; round < 5; ++round) {
    Child& victim = job[round % 3];
    EXPECT_EQ(victim.hear_of("ok"), "ok");
    stop(victim);
    victim.signal(SIGCONT);
  }
  for (int rank = 0; rank < 3; ++rank)
    for (int i = 0; i < 3; ++i) EXPECT_EQ(job[rank].hear_of("ok"), "ok");
}

C10D_ON_EACH_BACKEND(Stop);

}}  // namespace c10d::fault
