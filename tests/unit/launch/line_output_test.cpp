// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/line_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <vector>

#include "c10d/launch.h"

namespace c10d { inline namespace v0 { namespace {

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

// The lines, each after the status that is shown while it is printed; at the end the last status.
Lines split_with_status(const std::vector<std::string>& pieces) {
  Lines lines;
  std::string shown;
  const auto sink = [&](std::string_view line) {
    lines.push_back(shown + '|' + std::string(line));
  };
  const auto status = [&](std::string_view text) { shown = text; };
  LineSplitter splitter;
  for (const std::string& piece : pieces) splitter.add(piece, sink, status);
  lines.push_back(shown + '|');
  splitter.finish(sink, status);
  EXPECT_EQ(shown, "");
  return lines;
}

TEST(LineSplitter, StatusIsNoLineHoweverTheBytesCome) {
  const std::string text = "one\nbar 1\rtwo\r\nthree\nbar 2\rbar 3\rfour\n\rfive\nbar 4\r";
  const Lines lines = {"|one", "|two\r", "|three", "bar 3|four", "|five", "bar 4|"};
  EXPECT_EQ(split_with_status({text}), lines);
  for (std::size_t at = 0; at <= text.size(); ++at)
    EXPECT_EQ(split_with_status({text.substr(0, at), text.substr(at)}), lines) << at;
  Lines bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(split_with_status(bytes), lines);
  EXPECT_EQ(split_with_status({"bar\r", "unfinished"}), (Lines{"bar|", "|unfinished"}));
}

TEST(LineSplitter, AnEndlessStatusComesInLines) {
  const std::string piece(LineSplitter::kMaxLine, 'a');
  EXPECT_EQ(split_with_status({piece + piece, "b\r"}), (Lines{'|' + piece, '|' + piece, "b|"}));
}

TEST(StatusLine, IsReplacedErasedAndShownAgain) {
  StatusLine status;
  EXPECT_EQ(status.erase() + status.again() + status.show("", 80), "");
  EXPECT_EQ(status.show("bar 1", 80), "\rbar 1\x1b[K\r");
  EXPECT_EQ(status.show("bar 2", 80), "\rbar 2\x1b[K\r");
  EXPECT_EQ(status.erase(), "\r\x1b[K");
  EXPECT_EQ(status.again(), "bar 2\r");
  EXPECT_EQ(status.show("", 80), "\r\x1b[K");
  EXPECT_EQ(status.erase() + status.again(), "");
}

TEST(StatusLine, FitsTheTerminalAndDoesNotSteerIt) {
  const auto shown = [](std::string_view text, int columns) {
    StatusLine status;
    status.show(text, columns);
    return status.again();
  };
  EXPECT_EQ(shown("0123456789", 10), "012345678\r");
  EXPECT_EQ(shown("012345678", 10), "012345678\r");
  EXPECT_EQ(shown(std::string(LineSplitter::kMaxLine, '\x01'), 10), "\\x01\\x01\\\r");
  EXPECT_EQ(shown("\x1b[2J\tb", 80), "\\x1b[2J b\r");
  EXPECT_EQ(shown("a\xc3\xa9z", 5), "a\xc3\xa9z\r");
  EXPECT_EQ(shown("a\xc3\xa9z", 4), "a\xc3\xa9\r");
  EXPECT_EQ(shown("a\xc3\xa9z", 3), "a\r");
  EXPECT_EQ(shown("\x80\x80\x80", 3), "");
  for (const int columns : {1, 0}) EXPECT_EQ(shown("abc", columns), "");
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

// A pipe that keeps writes apart shows them.
TEST(OutputBatch, WritesManyWholeLinesAtATimeInTheirOrder) {
  constexpr int kLineCount = 200;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_DIRECT | O_NONBLOCK), 0);
  fflush(stdout);
  const int before = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  std::string expected;
  {
    const OutputBatch batch;
    for (int i = 0; i < kLineCount; ++i) {
      const std::string line = std::to_string(i) + std::string(75, '.');
      print_rank_line(7, false, line, true);
      expected += "[7] " + line + "\n";
    }
  }
  dup2(before, STDOUT_FILENO);
  close(before);
  close(ends[1]);
  std::string all;
  std::size_t writes = 0;
  std::vector<char> packet(1 << 16);
  for (ssize_t n; (n = read(ends[0], packet.data(), packet.size())) > 0; ++writes) {
    all.append(packet.data(), static_cast<std::size_t>(n));
    EXPECT_EQ(all.back(), '\n') << "write " << writes << " ends within a line";
  }
  close(ends[0]);
  EXPECT_EQ(all, expected);
  EXPECT_EQ(writes, (expected.size() + 4000) / 4001) << "a write has room for 4096 bytes";
}

}}}  // namespace c10d::v0
