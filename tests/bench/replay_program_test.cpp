// SPDX-License-Identifier: BSD-3-Clause
// From a job to its ops on two backends, by the program.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/bench/programs.h"
#include "tests/bench/schema.h"

namespace c10d::bench { namespace {

// The folder with the record of a job whose ranks disagreed in the end.
void record_a_job(const std::string& folder) {
  const Ended job = run_line("env C10D_BACKEND=gloo C10D_RECORD_DIR=" + folder +
                             " " C10D_RUN " -n 2 " C10D_REPLAY_JOB " 2>&1");
  if (job.out.find("gloo") != std::string::npos && job.code != 0 &&
      std::filesystem::is_empty(folder))
    GTEST_SKIP() << "no gloo here: " << job.out;
  ASSERT_EQ(job.code, 0) << job.out;
}

TEST(ReplayProgram, WhatWasRecordedIsRunAndChecked) {
  const TemporaryDirectory folder, record;
  record_a_job(record.path());
  if (IsSkipped() || HasFatalFailure()) return;
  const Ended ended =
      run("replay " + record.path() + " -B native,gloo --steps 4 --blocks 2 --launches 1 --json " +
          (folder / "r.jsonl"));
  ASSERT_EQ(ended.code, 0) << ended.out;
  const Schema schema(C10D_SOURCE_DIR "/bench/schema/c10d-bench-1.schema.json");
  std::vector<std::string> ops;
  std::vector<Json> held;
  std::map<std::string, int> turns;
  bool compared = false;
  const std::vector<Json> lines = lines_of(folder / "r.jsonl");
  for (const Json& line : lines) {
    EXPECT_EQ(schema.complaint(line), "") << line.dump();
    if (line["t"] == "replay_op") {
      ops.push_back(line["call"].get<std::string>());
      held.push_back(line["held_us"]);
      EXPECT_TRUE(ops.size() != 3 || line["bytes"] == 64) << "the counts of both ranks";
    }
    if (line["t"] == "cmp") compared = line["base"] == "native" && line["other"] == "gloo";
    if (line["t"] != "replay") continue;
    ++turns[line["backend"].get<std::string>()];
    EXPECT_EQ(line["ops_us"].size(), 10U);
    if (line["backend"] == "recorded") continue;
    EXPECT_EQ(line["wrong"], 0) << line.dump();
    EXPECT_EQ(line["steps"], 4) << line.dump();
  }
  ASSERT_EQ(ops.size(), 10U);
  std::sort(ops.begin() + 6, ops.end());  // of sendrecv, which has them in any order
  EXPECT_EQ(ops, (std::vector<std::string>{
                     "all_reduce(sum, i64 x 1)", "all_reduce(max, f32 x 3000)", "all_gather_v(f64)",
                     "broadcast(f32 x 3000, root 1)", "send(i64 x 1, to 1, tag 7)",
                     "recv(i64 x 1, from 0, tag 7)", "recv(f32 x 4000, from 0, tag 0)",
                     "recv(f32 x 4000, from 1, tag 0)", "send(f32 x 3000, to 0, tag 0)",
                     "send(f32 x 3000, to 1, tag 0)"}));
  ASSERT_EQ(held.size(), 10U);
  EXPECT_GE(held[1], 2000) << "the program said when the gradient was ready";
  EXPECT_TRUE(held[0].is_null() && held[2].is_null() && held[3].is_null());
  EXPECT_EQ(turns, (std::map<std::string, int>{{"recorded", 1}, {"native", 2}, {"gloo", 2}}));
  EXPECT_TRUE(compared);
  EXPECT_EQ(lines.back()["t"], "end");
  EXPECT_EQ(lines.back()["ok"], true);
  EXPECT_NE(ended.out.find("2 ranks, 4 steps of 10 ops"), std::string::npos) << ended.out;

  // All ops that a rank has are async where each began before the last one ended; none is here.
  const Ended list = run("replay " + record.path() + " --list");
  EXPECT_EQ(list.code, 0) << list.out;
  EXPECT_NE(list.out.find("all_reduce(max, f32 x 3000)"), std::string::npos) << list.out;
  EXPECT_NE(list.out.find("communication"), std::string::npos) << list.out;
}

TEST(ReplayProgram, ARunningJobIsReadByItsProcess) {
  std::FILE* job = popen("exec " C10D_RUN " -n 2 " C10D_REPLAY_JOB " hold 2>&1", "r");
  ASSERT_NE(job, nullptr);
  std::array<char, 256> line{};
  std::string text;
  std::size_t at = std::string::npos;
  while (at == std::string::npos && std::fgets(line.data(), line.size(), job) != nullptr) {
    text += line.data();
    at = text.find("ready ");
  }
  ASSERT_NE(at, std::string::npos) << text;
  const pid_t rank = std::stoi(text.substr(at + 6));
  const Ended list = run("replay " + std::to_string(rank) + " --list");
  kill(rank, SIGKILL);  // and c10d-run ends the other
  while (std::fgets(line.data(), line.size(), job) != nullptr) {
  }
  pclose(job);
  EXPECT_EQ(list.code, 0) << list.out;
  EXPECT_NE(list.out.find("2 ranks, 6 steps of 10 ops"), std::string::npos) << list.out;
}

TEST(ReplayProgram, SaysWhatIsNoRecord) {
  const TemporaryDirectory folder;
  std::ofstream(folder / "cut.json") << R"({"c10d_record":1,"groups":[{"group":"w)";
  for (const auto& [arguments, why] :
       std::map<std::string, std::string>{{folder / "cut.json", "is no record, or one that is cut"},
                                          {folder.path(), "no file c10d-record-*.json"},
                                          {folder / "none.json", "cannot be read"},
                                          {"999999999", "no readable group in process"},
                                          {"", "record is required"},
                                          {(folder / "cut.json") + " -B nativ", "is no record"}}) {
    const Ended ended = run("replay " + arguments);
    EXPECT_EQ(ended.code, 2) << ended.out;
    EXPECT_NE(ended.out.find(why), std::string::npos) << ended.out;
  }
}

}}  // namespace c10d::bench
