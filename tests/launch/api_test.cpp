// SPDX-License-Identifier: BSD-3-Clause
// launch() from a program.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <thread>

#include "c10d/error.h"
#include "c10d/launch.h"
#include "tests/launch/process.h"

namespace c10d { inline namespace v0 { namespace {

struct Line {
  int rank;
  bool is_stderr;
  std::string text;
};

std::function<void(int, bool, std::string_view)> into(std::vector<Line>& lines) {
  return [&](int rank, bool is_stderr, std::string_view line) {
    lines.push_back({rank, is_stderr, std::string(line)});
  };
}

TEST(Launch, GivesLinesAndResults) {
  std::vector<Line> lines;
  const LaunchResult result =
      launch({.ranks = 2, .command = {C10D_PROBE, "text", "out\n", "err"}, .on_line = into(lines)});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.first_failed, -1);
  ASSERT_EQ(result.ranks.size(), 2u);
  EXPECT_EQ(result.ranks[1].last_lines, "err");
  EXPECT_EQ(lines.size(), 4u);
}

TEST(Launch, NamesTheFirstFailure) {
  std::vector<Line> lines;
  const LaunchResult result = launch(
      {.ranks = 3, .command = {C10D_PROBE, "fail", "1", "signal", "6"}, .on_line = into(lines)});
  EXPECT_EQ(result.exit_code, 128 + SIGABRT);
  EXPECT_EQ(result.first_failed, 1);
  EXPECT_EQ(result.ranks[1].signal, SIGABRT);
  EXPECT_EQ(result.ranks[0].signal, SIGTERM);
  EXPECT_EQ(result.forwarded_signal, 0);
}

// The others are in an op of five minutes, and have a hundred seconds to end in. They are gone
// when launch() returns.
TEST(Launch, HandsOnWhatARankThrewAndLeavesNothing) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::vector<Line> lines;
  const LaunchResult result = launch({.ranks = 4,
                                      .command = {C10D_PROBE, "throw", "2"},
                                      .grace = std::chrono::seconds(100),
                                      .on_line = into(lines)});
  EXPECT_EQ(result.first_failed, 2);
  EXPECT_EQ(result.exit_code, 128 + SIGABRT);
  ASSERT_EQ(result.ranks.size(), 4u);
  const std::string& said = result.ranks[2].last_lines;
  EXPECT_NE(said.find("'std::range_error'"), std::string::npos) << said;
  EXPECT_NE(said.find("what():  digit 7 is missing"), std::string::npos) << said;
  for (const int rank : {0, 1, 3})
    EXPECT_EQ(result.ranks[static_cast<std::size_t>(rank)].signal, SIGTERM) << "rank " << rank;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child, orphans included
  EXPECT_EQ(errno, ECHILD);
}

TEST(Launch, RefusesNonsense) {
  EXPECT_THROW(launch({.ranks = 0, .command = {"true"}}), InvalidArgument);
  EXPECT_THROW(launch({.ranks = 1, .command = {}}), InvalidArgument);
  EXPECT_THROW(launch({.command = {"true"}, .grace = Duration(-1)}), InvalidArgument);
  EXPECT_THROW(launch({.command = {"true"}, .max_failures = -1}), InvalidArgument);
  EXPECT_THROW(launch({.command = {"./no-such-program"}}), InvalidArgument);
}

TEST(Launch, EndsAtItsTimeout) {
  const LaunchResult result = launch({.ranks = 2,
                                      .command = {"sleep", "1000"},
                                      .grace = std::chrono::minutes(1),
                                      .timeout = std::chrono::milliseconds(50)});
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_EQ(result.first_failed, -1) << "none failed by itself";
  EXPECT_EQ(result.forwarded_signal, 0);
  ASSERT_EQ(result.ranks.size(), 2u);
  for (const RankResult& rank : result.ranks) {
    EXPECT_EQ(rank.signal, SIGTERM);
    EXPECT_EQ(rank.exit_code, 128 + SIGTERM);
    EXPECT_GT(rank.pid, 0);
  }
}

// No shell reads the command; of what a rank complained the end is kept.
TEST(Launch, GivesArgumentsAsTheyAreAndKeepsTheLastTwentyLines) {
  std::vector<Line> lines;
  const LaunchResult result =
      launch({.command = {"sh", "-c", "echo \"$1\"; seq 30 >&2; exit 3", "sh", "$HOME *"},
              .on_line = into(lines)});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.first_failed, 0);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.ranks.at(0).exit_code, 3);
  EXPECT_EQ(result.ranks.at(0).signal, 0);
  std::string last;
  for (int i = 11; i <= 30; ++i) last += (i == 11 ? "" : "\n") + std::to_string(i);
  EXPECT_EQ(result.ranks.at(0).last_lines, last);
  const auto own = [](const Line& line) { return !line.is_stderr; };
  const auto found = std::find_if(lines.begin(), lines.end(), own);
  ASSERT_NE(found, lines.end());
  EXPECT_EQ(found->text, "$HOME *");
}

TEST(Launch, LeavesNothingWhenACallbackThrows) {
  EXPECT_THROW(
      launch({.ranks = 2,
              .command = {C10D_PROBE, "children", "stay"},
              .on_line = [](int, bool, std::string_view) { throw std::runtime_error("enough"); }}),
      std::runtime_error);
  EXPECT_EQ(processes_left(), "");
}

TEST(Launch, RestoresTheCallersSignals) {
  struct sigaction mine = {}, before = {}, after = {}, interrupt = {};
  sigaction(SIGINT, nullptr, &interrupt);
  mine.sa_handler = SIG_IGN;
  sigaction(SIGQUIT, &mine, &before);
  EXPECT_EQ(launch({.command = {"true"}}).exit_code, 0);
  sigaction(SIGQUIT, &before, &after);
  EXPECT_EQ(after.sa_handler, SIG_IGN);
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(after.sa_handler, interrupt.sa_handler);
}

// So that none is lost between the caller's look for it and the start.
TEST(Launch, ForwardsASignalThatTheCallerHolds) {
  sigset_t held, before, after;
  sigemptyset(&held);
  sigaddset(&held, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &held, &before);
  raise(SIGTERM);
  const LaunchResult result = launch({.ranks = 2, .command = {"sleep", "100"}});
  pthread_sigmask(SIG_SETMASK, &before, &after);
  EXPECT_EQ(result.forwarded_signal, SIGTERM);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_EQ(sigismember(&after, SIGTERM), 1);
}

TEST(Launch, RunsOnceAtATime) {
  bool refused = false;
  const LaunchResult result = launch(
      {.command = {C10D_PROBE, "text", "x\n", ""}, .on_line = [&](int, bool, std::string_view) {
         std::thread([&] {
           try {
             launch({.command = {"true"}});
           } catch (const DistBackendError& error) {
             refused = error.code() == Code::concurrent_use;
           }
         }).join();
       }});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(refused);
}

}}}  // namespace c10d::v0
