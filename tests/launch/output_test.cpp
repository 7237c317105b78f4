// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "tests/launch/process.h"

namespace c10d::inline v0 {
namespace {

using Lines = std::vector<std::string>;

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Output, EachLineHasItsRank) {
  const Ended ended = run_ranks({"-n", "3", C10D_PROBE, "text", "out\n", "err\n"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(sorted_lines_of(ended.out), (Lines{"[0] out", "[1] out", "[2] out"}));
  EXPECT_EQ(sorted_lines_of(ended.err), (Lines{"[0] err", "[1] err", "[2] err"}));
}

TEST(Output, LinesOfManyRanksStayWhole) {
  constexpr int kRanks = 4, kLines = 2000;
  const Ended ended = run_ranks({"-n", "4", C10D_PROBE, "lines", std::to_string(kLines)});
  EXPECT_EQ(ended.code, 0);
  std::map<std::string, int> next;
  for (const std::string& line : lines_of(ended.out)) {
    const std::string rank = line.substr(1, 1);
    ASSERT_EQ(line, "[" + rank + "] line " + std::to_string(next[rank]++) + " of " + rank +
                        std::string(50, 'x'));
  }
  ASSERT_EQ(next.size(), static_cast<std::size_t>(kRanks));
  for (const auto& [rank, count] : next) EXPECT_EQ(count, kLines) << rank;
}

TEST(Output, AnUnfinishedLastLineIsShown) {
  const Ended ended = run_ranks({"-n", "1", C10D_PROBE, "text", "one\ntwo", "three"});
  EXPECT_EQ(ended.out, "[0] one\n[0] two\n");
  EXPECT_EQ(ended.err, "[0] three\n");
}

TEST(Output, WithoutPrefixLinesAreAsTheyWere) {
  EXPECT_EQ(run_ranks({"--no-prefix", C10D_PROBE, "text", "a\x1b[1mb\n", ""}).out, "a\x1b[1mb\n");
}

TEST(Output, ATerminalIsNotSteeredByTheRanks) {
  const Ended ended =
      run({.command = c10d_run({C10D_PROBE, "text", "a\x1b[2Jb\tc\r\n", ""}), .terminal = true});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, "[0] a\\x1b[2Jb\tc\r\n");
}

TEST(Output, InputGoesToRankZero) {
  const Ended ended =
      run({.command = c10d_run({"-n", "2", C10D_PROBE, "input"}), .input = "hello"});
  EXPECT_EQ(sorted_lines_of(ended.out), (Lines{"[0] input 5 hello", "[1] input 0 "}));
}

TEST(Output, OnlyChosenRanksAreShown) {
  const Ended ended =
      run_ranks({"-n", "3", "--local_ranks_filter", "0,2", C10D_PROBE, "text", "x\n", ""});
  EXPECT_EQ(sorted_lines_of(ended.out), (Lines{"[0] x", "[2] x"}));
}

TEST(Output, GoesToFiles) {
  std::string name = ::testing::TempDir() + "/c10d-run-logs-XXXXXX";
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path folder = name;
  const Ended ended = run_ranks({"-n", "2", "--log-dir", folder, "-r", "2", "-t", "0:1", C10D_PROBE,
                                 "text", "out\n", "err\n"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(sorted_lines_of(ended.out), (Lines{"[0] out", "[1] out"}));
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(content(folder / "0" / "stdout.log"), "out\n");
  EXPECT_EQ(content(folder / "1" / "stderr.log"), "err\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "1" / "stdout.log"));
  std::filesystem::remove_all(folder);
}

std::vector<std::string> by_shell(const std::string& line) {
  return {"sh", "-c", line, C10D_RUN, C10D_PROBE};  // "$0" and "$1" of the line
}

TEST(Output, AFullDiskIsMentionedOnceAndFailsNothing) {
  const Ended ended = run({.command = by_shell(R"("$0" -n 2 "$1" lines 5 > /dev/full)")});
  EXPECT_EQ(ended.code, 0);
  const std::string said = "cannot write to stdout: No space left on device";
  const std::size_t at = ended.err.find(said);
  EXPECT_NE(at, std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find(said, at + 1), std::string::npos) << ended.err;
}

// Whatever the launcher opens first would have their numbers.
TEST(Output, ClosedStreamsOfTheLauncherHurtNobody) {
  const Ended ended = run({.command = by_shell(R"(
    "$0" -n 2 "$1" input <&- && "$0" -n 2 "$1" store >&- && "$0" -n 2 "$1" store >&- 2>&-)")});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(sorted_lines_of(ended.out), (Lines{"[0] input 0 ", "[1] input 0 "}));
  EXPECT_EQ(ended.err, "");
}

TEST(Output, MoreRanksThanTheUsualLimitOfDescriptors) {
  const Ended ended = run({.command = by_shell(R"(ulimit -Sn 64; "$0" -n 20 sh -c 'ulimit -n')")});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(lines_of(ended.out).size(), 20u) << ended.out;
  for (const std::string& line : lines_of(ended.out)) EXPECT_TRUE(line.ends_with("] 64")) << line;
  const Ended refused = run({.command = by_shell(R"(ulimit -n 64; "$0" -n 20 true)")});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("the limit is 64; raise it"), std::string::npos) << refused.err;
}

TEST(Output, AFolderThatCannotBeMadeIsAnError) {
  const Ended ended = run_ranks({"--log-dir", "/dev/null/logs", C10D_PROBE, "text", "", ""});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("/dev/null/logs"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace c10d::inline v0
