// SPDX-License-Identifier: BSD-3-Clause
// How a job ends: failures, signals, and that nothing is left.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>

#include "tests/launch/process.h"
#include "tools/run/restart_backoff.h"

namespace c10d { inline namespace v0 { namespace {

class End : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(processes_left(), ""); }
};

// Whether the process ignores SIGHUP, as /proc has it.
bool ignores_hangup(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("SigIgn:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (SIGHUP - 1) & 1) != 0;
  return false;
}

pid_t pid_of_rank(const Process& process, int rank) {
  const std::string start = "[" + std::to_string(rank) + "] ready ";
  for (const std::string& line : lines_of(process.out()))
    if (line.starts_with(start)) return std::stoi(line.substr(start.size()));
  return -1;
}

TEST_F(End, TheFirstFailureIsReported) {
  const Ended ended = run_ranks({"-n", "4", C10D_PROBE, "fail", "2", "exit", "7"});
  EXPECT_EQ(ended.code, 7);
  EXPECT_TRUE(contains(ended.err, "rank 2 (pid ")) << ended.err;
  EXPECT_TRUE(contains(ended.err, "failed first: exit code 7")) << ended.err;
  EXPECT_TRUE(contains(ended.err, "  | complaint 10\n")) << ended.err;
  EXPECT_FALSE(contains(ended.err, "  | complaint 9\n")) << "more than 20 lines: " << ended.err;
  EXPECT_TRUE(contains(ended.err, "         2  7                 as above\n")) << ended.err;
}

TEST_F(End, TheSameFailureIsToldOnce) {
  const Ended ended = run_ranks({"-n", "4", "--max-failures", "4", "sh", "-c",
                                 "echo \"c10d: the same\" >&2; exit $((RANK == 1 ? 4 : 3))"});
  EXPECT_TRUE(contains(ended.err, "   0, 2, 3  3                 ")) << ended.err;
  EXPECT_TRUE(contains(ended.err, "         1  4                 ")) << ended.err;
  EXPECT_EQ(ended.err.find("| c10d: the same"), ended.err.rfind("| c10d: the same")) << ended.err;
}

// One that no sanitizer handles itself.
TEST_F(End, ASignalIsReported) {
  const Ended ended = run_ranks({"-n", "2", C10D_PROBE, "fail", "1", "signal", "6"});
  EXPECT_EQ(ended.code, 128 + SIGABRT);
  EXPECT_TRUE(contains(ended.err, "killed by signal 6 (Aborted)")) << ended.err;
  EXPECT_TRUE(contains(ended.err, "134 (SIGABRT)")) << ended.err;
}

TEST_F(End, ARankKilledFromOutsideEndsTheJob) {
  Process process({.command = c10d_run({"-n", "3", C10D_PROBE, "signals"})});
  ASSERT_TRUE(process.wait_for_lines(3));
  const pid_t victim = pid_of_rank(process, 1);
  ASSERT_GT(victim, 1);
  kill(victim, SIGKILL);
  EXPECT_EQ(process.wait(), 128 + SIGKILL);
  EXPECT_TRUE(contains(process.err(), "rank 1 (pid ")) << process.err();
}

TEST_F(End, ARankThatIgnoresSigtermIsKilledAfterTheGrace) {
  Process process({.command = c10d_run({"-n", "2", "--grace", "0.2", C10D_PROBE, "ignore_term"}),
                   .hold_input = true});
  ASSERT_TRUE(process.wait_for_lines(1));
  process.close_input();
  EXPECT_EQ(process.wait(), 9);
  EXPECT_TRUE(contains(process.err(), "137 (SIGKILL)")) << process.err();
}

TEST_F(End, ChildrenOfTheRanksEndWithTheJob) {
  EXPECT_EQ(run_ranks({"-n", "2", C10D_PROBE, "children", "leave"}).code, 0);
}

TEST_F(End, NothingOutlivesALauncherThatWasKilled) {
  Process process({.command = c10d_run({"-n", "2", C10D_PROBE, "children", "stay"})});
  ASSERT_TRUE(process.wait_for_lines(6));  // two ranks with two children each
  kill(process.pid(), SIGKILL);
  EXPECT_EQ(process.wait(), 128 + SIGKILL);  // its pipes close with the last process of the job
}

TEST_F(End, NothingOutlivesALauncherThatWasTerminated) {
  Process process({.command = c10d_run({"-n", "2", C10D_PROBE, "children", "stay"})});
  ASSERT_TRUE(process.wait_for_lines(6));
  kill(process.pid(), SIGTERM);
  EXPECT_EQ(process.wait(), 128 + SIGTERM);
}

TEST_F(End, NothingOutlivesALauncherWhoseReaderLeft) {
  pid_t pid = -1;
  {
    Process process({.command = c10d_run({"-n", "2", C10D_PROBE, "children", "stay"})});
    ASSERT_TRUE(process.wait_for_lines(6));
    pid = process.pid();
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(End, ASignalEndsAJobWhoseOutputNobodyReads) {
  Process process({.command = c10d_run({"-n", "2", C10D_PROBE, "lines", "1000000"})});
  ASSERT_TRUE(process.wait_for_lines(1));
  kill(process.pid(), SIGTERM);
  siginfo_t info{};
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(process.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process.wait(), 128 + SIGTERM);
}

TEST_F(End, TheTimeOfAJobEndsItWhenNobodyReadsItsOutput) {
  Process process({.command = {C10D_PROBE, "launch_for", "1", C10D_PROBE, "lines", "1000000"}});
  siginfo_t info{};
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(process.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process.wait(), 124);
}

TEST_F(End, ATimeoutEndsTheRanksAndSaysSo) {
  const Ended ended = run_ranks({"-n", "2", "--timeout", "0.2", "sleep", "1000"});
  EXPECT_EQ(ended.code, 124);
  EXPECT_TRUE(
      contains(ended.err,
               "c10d-run: the time limit of the job has passed (--timeout 0.2); exit code 124 "
               "(timed out)\n"))
      << ended.err;
  EXPECT_TRUE(contains(ended.err, "      0, 1  143 (SIGTERM)")) << ended.err;
  EXPECT_EQ(run_ranks({"-n", "2", "--timeout", "100", "true"}).code, 0);
}

TEST_F(End, ATimeoutHoldsForAllRestartsTogether) {
  const Ended second =
      run_ranks({"--timeout", "1", "--max-restarts", "3", "sh", "-c",
                 "test $C10D_RESTART_COUNT = 0 && exit 3; echo again; exec sleep 1000"});
  EXPECT_EQ(second.code, 124) << second.err;
  EXPECT_EQ(second.out, "[0] again\n");
  const Ended waiting =
      run_ranks({"--timeout", "0.3", "--max-restarts", "3", "sh", "-c", "exit 3"});
  EXPECT_EQ(waiting.code, 3);
  EXPECT_TRUE(contains(waiting.err, "--timeout leaves no time for restart 1 of 3")) << waiting.err;
}

TEST_F(End, OtherSignalsAreForwardedOnRequest) {
  const std::vector<std::string> ranks = {"-n", "2", "sh", "-c", "echo ready; exec sleep 1000"};
  const auto start = [&](const std::string& signals) {
    std::vector<std::string> options = {"--signals_to_handle", signals};
    options.insert(options.end(), ranks.begin(), ranks.end());
    return Process::Options{.command = c10d_run(options)};
  };
  Process more(start("SIGTERM,USR1"));
  ASSERT_TRUE(more.wait_for_lines(2));
  kill(more.pid(), SIGUSR1);
  EXPECT_EQ(more.wait(), 128 + SIGUSR1);
  EXPECT_TRUE(contains(more.err(), "got signal 10 (User defined signal 1) and forwarded it"))
      << more.err();
  Process fewer(start("SIGTERM"));
  ASSERT_TRUE(fewer.wait_for_lines(2));
  kill(fewer.pid(), SIGINT);
  EXPECT_EQ(fewer.wait(), 128 + SIGINT);
  EXPECT_EQ(fewer.err(), "") << "it ends the launcher alone; the guardian ends the ranks";
}

class Forwarding : public End, public ::testing::WithParamInterface<int> {};

TEST_P(Forwarding, ReachesEveryRank) {
  const int signal = GetParam();
  Process process({.command = c10d_run({"-n", "3", C10D_PROBE, "signals"})});
  ASSERT_TRUE(process.wait_for_lines(3));
  kill(process.pid(), signal);
  EXPECT_EQ(process.wait(), 3);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(contains(process.out(),
                         "[" + std::to_string(rank) + "] got " + std::to_string(signal) + "\n"))
        << process.out();
}
INSTANTIATE_TEST_SUITE_P(Signals, Forwarding, ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT));

TEST_F(End, ASignalThatTheCallerIgnoresStaysIgnored) {
  Process process(
      {.command = c10d_run({"-n", "2", C10D_PROBE, "signals"}), .ignored_signal = SIGHUP});
  ASSERT_TRUE(process.wait_for_lines(2));
  EXPECT_TRUE(ignores_hangup(process.pid()));
  EXPECT_TRUE(ignores_hangup(pid_of_rank(process, 1)));
  kill(process.pid(), SIGTERM);
  EXPECT_EQ(process.wait(), 3);
}

TEST_F(End, ChildrenAreSeenEvenWhenTheCallerIgnoresSigchld) {
  const Ended ended = run({.command = c10d_run({"-n", "2", C10D_PROBE, "fail", "0", "exit", "6"}),
                           .ignored_signal = SIGCHLD});
  EXPECT_EQ(ended.code, 6);
}

TEST_F(End, AsManyMayFailAsAreAllowedTo) {
  const auto end_with = [](const std::string& max_failures, const std::string& code_of_rank) {
    return run_ranks({"-n", "3", "--max-failures", max_failures, "sh", "-c",
                      "set -- " + code_of_rank + "; shift $RANK; exit $1"});
  };
  const Ended allowed = end_with("1", "0 7 0");
  EXPECT_EQ(allowed.code, 0);
  EXPECT_TRUE(contains(allowed.err, "rank 1 (pid ")) << allowed.err;
  EXPECT_TRUE(contains(allowed.err, "failed first: exit code 7")) << allowed.err;
  EXPECT_TRUE(contains(allowed.err, "the others went on")) << allowed.err;
  EXPECT_EQ(end_with("0", "7 7 7").code, 7);
  EXPECT_EQ(end_with("1", "7 7 7").code, 7);
  EXPECT_EQ(end_with("9", "7 7 7").code, 7) << "nobody is left";
}

TEST_F(End, RestartsStartAllRanksAgain) {
  const Ended ended = run_ranks({"-n", "2", "--max_restarts=2", C10D_PROBE, "fail_until", "1"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(contains(ended.err, "c10d-run: restart 1 of 2 in 0.5 s\n")) << ended.err;
  const std::vector<std::string> lines = lines_of(ended.out);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[0] start 1"), 1) << ended.out;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[1] start 1"), 1) << ended.out;
}

TEST_F(End, RestartsWaitTwiceAsLongEachTimeUntilARunLasts) {
  using namespace std::chrono_literals;
  RestartBackoff backoff;
  for (const auto expected : {500ms, 1000ms, 2000ms, 4000ms, 8000ms, 16'000ms, 30'000ms, 30'000ms})
    EXPECT_EQ(backoff.after(59s), expected);
  EXPECT_EQ(backoff.after(60s), 500ms);
  EXPECT_EQ(backoff.after(0s), 1000ms);
}

TEST_F(End, ASignalEndsTheWaitForARestart) {
  Process process({.command = c10d_run({"--max-restarts", "9", C10D_PROBE, "fail_until", "9"})});
  ASSERT_TRUE(process.wait_for_error("restart 3 of 9 in 2.0 s"));
  kill(process.pid(), SIGTERM);
  EXPECT_EQ(process.wait(), 128 + SIGTERM);
  EXPECT_TRUE(contains(process.err(), "c10d-run: got signal 15")) << process.err();
  EXPECT_EQ(process.out(), "[0] start 0\n[0] start 1\n[0] start 2\n");
}

TEST_F(End, RestartsEnd) {
  const auto started = std::chrono::steady_clock::now();
  const Ended ended = run_ranks({"--max-restarts", "2", C10D_PROBE, "fail_until", "9"});
  EXPECT_EQ(ended.code, 4);
  EXPECT_EQ(ended.out, "[0] start 0\n[0] start 1\n[0] start 2\n");
  EXPECT_TRUE(ended.err.ends_with("c10d-run: gave up after 2 restarts\n")) << ended.err;
  EXPECT_GE(std::chrono::steady_clock::now() - started, 3 * RestartBackoff::kFirst);
}

// The way of c10d-run and of its ranks to each other is the loopback interface.
TEST_F(End, WithoutALoopbackInterfaceSaysSoAtOnce) {
  const std::vector<std::string> alone = {"unshare", "--net", C10D_RUN, "-n", "2", "true"};
  if (run({.command = {"unshare", "--net", "true"}}).code != 0)
    GTEST_SKIP() << "no network namespace can be made here: it takes root, and unshare";
  const auto started = std::chrono::steady_clock::now();
  const Ended ended = run({.command = alone});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(contains(ended.err, "ip link set lo up")) << ended.err;
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(3));
}

}}}  // namespace c10d::v0
