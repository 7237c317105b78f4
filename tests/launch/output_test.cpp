// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>

#include "tests/launch/process.h"
#include "tests/temporary_directory.h"

namespace c10d { inline namespace v0 { namespace {

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

// What a terminal shows of these bytes in the end, line by line.
Lines screen_of(const std::string& bytes) {
  Lines rows(1);
  std::size_t column = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string& row = rows.back();
    if (bytes[i] == '\r') {
      column = 0;
    } else if (bytes[i] == '\n') {
      rows.emplace_back();
    } else if (bytes.compare(i, 3, "\x1b[K") == 0) {
      row.resize(std::min(row.size(), column));
      i += 2;
    } else {
      if (row.size() <= column) row.resize(column + 1, ' ');
      row[column++] = bytes[i];
    }
  }
  return rows;
}

// Of two ranks that count to 20, in the order of sorted_lines_of().
Lines status_probes_lines(const std::string& columns) {
  Lines lines = {"[0] columns " + columns, "[1] columns 0"};
  for (const std::string rank : {"[0] ", "[1] "})
    for (int i = 0; i < 20; ++i)
      for (const std::string what : {"line ", "word "})
        lines.push_back(rank + what + std::to_string(i));
  std::sort(lines.begin(), lines.end());
  return lines;
}

const std::map<std::string, std::string> kXterm = {{"TERM", "xterm"}, {"CI", ""}};

TEST(Output, AStatusLineStaysBelowTheLinesOfATerminal) {
  const Ended ended = run({.command = c10d_run({"-n", "2", C10D_PROBE, "status", "20"}),
                           .environment = kXterm,
                           .terminal = true});
  EXPECT_EQ(ended.code, 0);
  for (int i = 0; i < 20; ++i) {
    const std::string shown = "\rstep " + std::to_string(i) + " is done\x1b[K\r";
    EXPECT_NE(ended.out.find(shown), std::string::npos) << i;
  }
  const std::string cut = "\rthe end of " + std::string(79 - 11, 'x') + "\x1b[K\r";
  EXPECT_NE(ended.out.find(cut), std::string::npos) << ended.out;
  Lines rows = screen_of(ended.out);
  EXPECT_EQ(rows.back(), "");
  rows.pop_back();
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(rows, status_probes_lines("80"));
}

TEST(Output, WithoutATerminalThereIsNoStatusLine) {
  const Ended piped = run_ranks({"-n", "2", C10D_PROBE, "status", "20"}, kXterm);
  EXPECT_EQ(sorted_lines_of(piped.out + piped.err), status_probes_lines("0"));
  EXPECT_EQ(run_ranks({C10D_PROBE, "text", "", "bar\rword\n"}, kXterm).err, "[0] bar\rword\n");
  using Variable = std::pair<std::string, std::string>;
  for (const Variable& unwanted : {Variable("TERM", "dumb"), Variable("CI", "true")}) {
    std::map<std::string, std::string> environment = kXterm;
    environment[unwanted.first] = unwanted.second;
    const Ended ended = run({.command = c10d_run({C10D_PROBE, "text", "", "bar\rword\n"}),
                             .environment = environment,
                             .terminal = true});
    EXPECT_EQ(ended.out, "[0] bar\\x0dword\r\n") << unwanted.first;
  }
}

TEST(Output, AStatusLineGoesToNoFile) {
  const TemporaryDirectory folder;
  const Ended ended = run({.command = c10d_run({"--log-dir", folder.path(), "-t", "2", C10D_PROBE,
                                                "text", "", "bar\rword\n"}),
                           .environment = kXterm,
                           .terminal = true});
  EXPECT_EQ(ended.out, "[0] bar\\x0dword\r\n");
  EXPECT_EQ(content(folder / "0/stderr.log"), "bar\rword\n");
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
  const TemporaryDirectory folder;
  const Ended ended = run_ranks({"-n", "2", "--log-dir", folder.path(), "-r", "2", "-t", "0:1",
                                 C10D_PROBE, "text", "out\n", "err\n"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(sorted_lines_of(ended.out), (Lines{"[0] out", "[1] out"}));
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(content(folder / "0/stdout.log"), "out\n");
  EXPECT_EQ(content(folder / "1/stderr.log"), "err\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "1/stdout.log"));
}

TEST(Output, EachLineHasItsTime) {
  const TemporaryDirectory folder;
  const Ended ended = run_ranks({"--timestamps", "--log-dir", folder.path(), "-t", "1", C10D_PROBE,
                                 "text", "out\n", "err\n"});
  const std::string time = "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3} ";
  EXPECT_TRUE(std::regex_match(ended.out, std::regex("\\[0\\] " + time + "out\n"))) << ended.out;
  EXPECT_TRUE(std::regex_match(ended.err, std::regex("\\[0\\] " + time + "err\n"))) << ended.err;
  EXPECT_EQ("[0] " + content(folder / "0/stdout.log"), ended.out);
}

TEST(Output, WithoutAFolderFilesGoToATemporaryOne) {
  const TemporaryDirectory folder;
  const Ended ended =
      run_ranks({"-r", "3", C10D_PROBE, "text", "out\n", "err\n"}, {{"TMPDIR", folder.path()}});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, "");
  const std::string said = "c10d-run: output of the ranks is in ";
  ASSERT_TRUE(ended.err.starts_with(said + folder.path() + "/c10d-run-")) << ended.err;
  const std::string made = ended.err.substr(said.size(), ended.err.size() - said.size() - 1);
  EXPECT_EQ(content(made + "/0/stdout.log"), "out\n");
  EXPECT_EQ(content(made + "/0/stderr.log"), "err\n");
}

// The mark without its time.
std::string mark(const std::string& text) {
  return std::regex_replace(text, std::regex("=== [0-9-]{10} [0-9:]{8}, "), "=== ");
}

TEST(Output, AMarkSeparatesTheRunsInAFile) {
  const TemporaryDirectory folder;
  const auto run_again = [&](const std::string& word) {
    return run_ranks({"--log-dir", folder.path(), C10D_PROBE, "text", word + "\n", ""}).code;
  };
  EXPECT_EQ(run_again("a b"), 0);
  EXPECT_EQ(content(folder / "0/stdout.log"), "a b\n");
  EXPECT_EQ(run_again("c"), 0);
  EXPECT_EQ(mark(content(folder / "0/stdout.log")),
            "a b\n=== c10d-run, attempt 0: " C10D_PROBE " text 'c\n' ''\nc\n");
  EXPECT_EQ(content(folder / "0/stderr.log"), "");
}

TEST(Output, AMarkSeparatesTheRestartsInAFile) {
  const TemporaryDirectory folder;
  const Ended ended =
      run_ranks({"--log-dir", folder.path(), "--max-restarts", "1", C10D_PROBE, "fail_until", "1"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(mark(content(folder / "0/stdout.log")),
            "start 0\n=== c10d-run, attempt 1: " C10D_PROBE " fail_until 1\nstart 1\n");
}

TEST(Output, LinesOfAFilterGoToOneMoreFile) {
  const TemporaryDirectory folder;
  const Ended ended =
      run_ranks({"-n", "2", "--log-dir", folder.path(), "-t", "1:1", "--duplicate_stdout_filters",
                 "pear,a,,b", "--duplicate-stderr-filters=err", C10D_PROBE, "text",
                 "apple\npears\na,b\na\n", "err\n"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(content(folder / "filtered_stdout.log"), "[1] pears\n[1] a,b\n") << "of -t only";
  EXPECT_EQ(content(folder / "filtered_stderr.log"), "");
  EXPECT_EQ(lines_of(ended.out).size(), 8u) << "all are shown";
  const TemporaryDirectory all;
  run_ranks({"-n", "2", "--log-dir", all.path(), "--duplicate-stderr-filters=err", C10D_PROBE,
             "text", "err\n", "err\n"});
  EXPECT_EQ(sorted_lines_of(content(all / "filtered_stderr.log")), (Lines{"[0] err", "[1] err"}));
  EXPECT_FALSE(std::filesystem::exists(all / "0")) << "nothing else was asked for";
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
  EXPECT_THAT(lines_of(ended.err),  // of the stranger in `store`
              testing::ElementsAre(testing::HasSubstr("the caller has another token")));
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

}}}  // namespace c10d::v0
