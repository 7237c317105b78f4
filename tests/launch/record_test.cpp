// SPDX-License-Identifier: BSD-3-Clause
// What people are shown of the record of the last ops, and of what is wrong in the environment.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/launch/process.h"
#include "tests/temporary_directory.h"

namespace c10d { inline namespace v0 { namespace {

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

class Record : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(processes_left(), ""); }
  std::vector<nlohmann::json> files() const {
    std::vector<nlohmann::json> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (entry.path().extension() == ".json")
        all.push_back(nlohmann::json::parse(std::ifstream(entry.path())));
    return all;
  }
  TemporaryDirectory folder_;
};

// The text of c10d-info once it holds `part`.
std::string shown(pid_t pid, const std::string& part) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  Ended ended;
  do {
    ended = run({.command = {C10D_INFO, "--pid", std::to_string(pid)}});
  } while (!contains(ended.out, part) && std::chrono::steady_clock::now() < end);
  EXPECT_TRUE(contains(ended.out, part)) << ended.out << ended.err;
  return ended.out;
}

TEST_F(Record, OfAJobThatHangsIsReadFromOutsideAndShownAtItsEnd) {
  Process job({.command = c10d_run({"-n", "3", C10D_PROBE, "hang"})});
  ASSERT_TRUE(job.wait_for_lines(2));
  const std::string text = shown(job.pid(), "  ranks 1, 2: no op yet, has not entered #1\n");
  EXPECT_TRUE(contains(text, "group \"world\", 3 ranks\n")) << text;
  EXPECT_TRUE(contains(text, "  rank 0: in barrier() #1, for ")) << text;

  const Ended ended =
      run({.command = {C10D_INFO, "--json", "--last", "1", "--pid", std::to_string(job.pid())}});
  const auto record = nlohmann::json::parse(ended.out);
  ASSERT_EQ(record["groups"].size(), 1u) << ended.out;
  const auto& ranks = record["groups"][0]["ranks"];
  ASSERT_EQ(ranks.size(), 3u);
  EXPECT_EQ(ranks[0]["ops"][0]["call"], "barrier()");
  EXPECT_EQ(ranks[0]["ops"][0]["state"], "running");
  EXPECT_TRUE(ranks[1]["ops"].empty());
  EXPECT_TRUE(record["groups"][0]["failure"].is_null());

  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_TRUE(contains(job.err(),
                       "where the ranks were when they were stopped:\n"
                       "group \"world\", 3 ranks\n"
                       "  rank 0: in barrier() #1, for "))
      << job.err();
}

TEST_F(Record, OfAProcessThatIsInNoGroupIsAnError) {
  const Ended ended = run({.command = {C10D_INFO, "--pid", std::to_string(getpid())}});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(contains(ended.err, "no readable group in process " + std::to_string(getpid())))
      << ended.err;
}

TEST_F(Record, IsKeptInAFileWhenAGroupBreaks) {
  const Ended ended =
      run_ranks({"-n", "2", C10D_PROBE, "disagree"}, {{"C10D_RECORD_DIR", folder_.path()}});
  EXPECT_EQ(ended.code, 5) << ended.err;
  const std::vector<nlohmann::json> all = files();
  ASSERT_GE(all.size(), 1u) << ended.err;
  for (const auto& record : all) {
    EXPECT_EQ(record["groups"][0]["failure"]["code"], "mismatch");
    EXPECT_EQ(record["groups"][0]["ranks"].size(), 2u);
  }
}

TEST_F(Record, ComesWithTheSignalThatTheEnvironmentNames) {
  Process alone({.command = {C10D_PROBE, "hang"}, .environment = {{"C10D_RECORD_SIGNAL", "USR1"}}});
  ASSERT_TRUE(alone.wait_for_lines(1));
  kill(alone.pid(), SIGUSR1);
  EXPECT_TRUE(alone.wait_for_error("ok       barrier() #1, ")) << alone.err();
  kill(alone.pid(), SIGTERM);
  EXPECT_EQ(alone.wait(), 128 + SIGTERM);
}

TEST_F(Record, ComesWithTheSignalIntoTheFolder) {
  Process alone(
      {.command = {C10D_PROBE, "hang"},
       .environment = {{"C10D_RECORD_SIGNAL", "USR2"}, {"C10D_RECORD_DIR", folder_.path()}}});
  ASSERT_TRUE(alone.wait_for_lines(1));
  kill(alone.pid(), SIGUSR2);
  EXPECT_TRUE(alone.wait_for_error("the record of the last ops is in " + folder_.path()))
      << alone.err();
  kill(alone.pid(), SIGTERM);
  EXPECT_EQ(alone.wait(), 128 + SIGTERM);
  const std::vector<nlohmann::json> all = files();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["groups"][0]["ranks"][0]["ops"][0]["op"], "barrier");
}

TEST_F(Record, WithoutBeingAskedForNoSignalIsHandled) {
  Process alone({.command = {C10D_PROBE, "hang"}});
  ASSERT_TRUE(alone.wait_for_lines(1));
  kill(alone.pid(), SIGUSR1);
  EXPECT_EQ(alone.wait(), 128 + SIGUSR1);
}

TEST_F(Record, WhatIsWrongInTheEnvironmentIsSaidOnce) {
  const Ended ended =
      run({.command = {C10D_PROBE, "groups"},
           .environment = {{"C10D_LOG", "nonsense"},
                           {"C10D_BAKEND", "native"},
                           {"C10D_BACKEND_PATH", folder_.path() + ":/no/such/folder"},
                           {"C10D_RECORD_DIR", "/no/such/place"}}});
  EXPECT_EQ(ended.code, 0) << ended.err;
  for (const char* said :
       {"C10D_LOG=nonsense is none of: error, warn, info, debug; using warn",
        "c10d does not know the environment variable C10D_BAKEND; did you mean C10D_BACKEND?",
        "C10D_BACKEND_PATH: /no/such/folder is no folder",
        "C10D_RECORD_DIR: /no/such/place is no folder"})
    EXPECT_EQ(times(ended.err, said), 1u) << said << "\n" << ended.err;
}

// Each with what it may be.
TEST_F(Record, AValueThatAVariableCannotHaveIsAnError) {
  const std::pair<std::pair<const char*, const char*>, const char*> rows[] = {
      {{"C10D_RECORD_SIGNAL", "KILL"}, "C10D_RECORD_SIGNAL=KILL is none of: USR1, USR2, QUIT"},
      {{"C10D_TIMEOUT", "soon"}, "C10D_TIMEOUT=soon is no whole number from 1 to 1000000"},
      {{"C10D_LAUNCHER", "x"}, "C10D_LAUNCHER=x: no such launcher; known are c10d, torchrun,"},
      {{"C10D_BACKEND", "nativ"}, "native"},
      {{"C10D_TOKEN_FD", "x"}, "C10D_TOKEN_FD=x is no whole number from 0 to"},
      {{"C10D_TOKEN_FILE", "/no/such/file"}, "/no/such/file"},
      {{"C10D_STORE", "here"}, "here"},
      {{"C10D_RANK", "0"}, "C10D_WORLD_SIZE"},
  };
  for (const auto& [variable, said] : rows) {
    const Ended ended = run(
        {.command = {C10D_PROBE, "groups"}, .environment = {{variable.first, variable.second}}});
    EXPECT_EQ(ended.code, 1) << variable.first;
    EXPECT_TRUE(contains(ended.err, said)) << variable.first << ": " << ended.err;
  }
}

}}}  // namespace c10d::v0
