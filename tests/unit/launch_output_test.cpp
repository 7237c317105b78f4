// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <vector>

#include "c10d/launch.h"
#include "src/launch/output.h"

namespace c10d::inline v0 {
namespace {

std::vector<std::string> split(const std::vector<std::string>& pieces) {
  std::vector<std::string> lines;
  const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
  LineSplitter splitter;
  for (const std::string& piece : pieces) splitter.add(piece, sink);
  splitter.finish(sink);
  return lines;
}

using Lines = std::vector<std::string>;

TEST(RankLine, MayGoToAReaderThatLeft) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  fflush(stdout);
  const int before = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  for (int i = 0; i < 3; ++i) print_rank_line(0, false, "nobody reads this", true);
  dup2(before, STDOUT_FILENO);
  close(before);
  close(ends[1]);
  sigset_t pending;
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST(Launch, ATimeoutEndsTheRanks) {
  const LaunchResult result = launch(
      {.ranks = 2, .command = {"sleep", "100000"}, .timeout = std::chrono::milliseconds(50)});
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 124);
  for (const RankResult& rank : result.ranks) EXPECT_NE(rank.signal, 0);
  const LaunchResult soon =
      launch({.ranks = 1, .command = {"true"}, .timeout = std::chrono::hours(10)});
  EXPECT_FALSE(soon.timed_out);
  EXPECT_EQ(soon.exit_code, 0);
}

TEST(LineSplitter, CutsAtNewlinesHoweverTheBytesCome) {
  const std::string text = "one\n\ntwo\nthree";
  const Lines lines = {"one", "", "two", "three"};
  EXPECT_EQ(split({text}), lines);
  for (std::size_t at = 0; at <= text.size(); ++at)
    EXPECT_EQ(split({text.substr(0, at), text.substr(at)}), lines) << at;
  Lines bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(split(bytes), lines);
}

TEST(LineSplitter, EndsWithoutAnEmptyLine) {
  EXPECT_EQ(split({"one\n"}), Lines{"one"});
  EXPECT_EQ(split({}), Lines{});
}

TEST(LineSplitter, AnEndlessLineComesInPieces) {
  constexpr std::size_t kMax = LineSplitter::kMaxLine;
  const Lines lines = split({std::string(kMax - 1, 'a'), std::string(kMax + 1, 'b') + "\nc"});
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], std::string(kMax - 1, 'a') + "b");
  EXPECT_EQ(lines[1], std::string(kMax, 'b'));
  EXPECT_EQ(lines[2], "");
  EXPECT_EQ(lines[3], "c");
}

TEST(LineTail, KeepsTheLastLinesAndTheirBeginnings) {
  LineTail tail;
  EXPECT_EQ(tail.text(), "");
  for (int i = 0; i < 100; ++i) tail.add("line " + std::to_string(i));
  const std::string text = tail.text();
  EXPECT_TRUE(text.starts_with("line 80\n")) << text;
  EXPECT_TRUE(text.ends_with("\nline 99")) << text;
  tail.add(std::string(5000, 'x'));
  EXPECT_TRUE(tail.text().ends_with("\n" + std::string(LineTail::kLineBytes, 'x')));
}

TEST(Visible, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(visible("plain \xc3\xa9\ttext"), "plain \xc3\xa9\ttext");
  EXPECT_EQ(visible(std::string("\x1b]0;x\a\0\r\x7f", 9)), "\\x1b]0;x\\x07\\x00\\x0d\\x7f");
}

}  // namespace
}  // namespace c10d::inline v0
