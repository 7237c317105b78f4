// SPDX-License-Identifier: BSD-3-Clause
// What a rank finds when it starts.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/launch/process.h"

namespace c10d { inline namespace v0 { namespace {

// Of one rank, by name.
std::map<std::string, std::string> variables(
    const std::vector<std::string>& names, std::vector<std::string> options, int rank,
    const std::map<std::string, std::string>& callers = {}) {
  options.insert(options.end(), {C10D_PROBE, "variables"});
  options.insert(options.end(), names.begin(), names.end());
  const Ended ended = run_ranks(options, callers);
  EXPECT_EQ(ended.code, 0) << ended.err;
  std::map<std::string, std::string> values;
  const std::string prefix = "[" + std::to_string(rank) + "] ";
  for (const std::string& line : lines_of(ended.out)) {
    if (!line.starts_with(prefix)) continue;
    const std::size_t equals = line.find('=');
    values[line.substr(prefix.size(), equals - prefix.size())] = line.substr(equals + 1);
  }
  return values;
}

TEST(RankEnvironment, HoldsTheWholeContract) {
  const std::map<std::string, std::string> expected = {
      {"C10D_RANK", "1"},
      {"C10D_WORLD_SIZE", "2"},
      {"C10D_LOCAL_RANK", "1"},
      {"C10D_LOCAL_WORLD_SIZE", "2"},
      {"C10D_RESTART_COUNT", "0"},
      {"RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", "1"},
      {"ROLE_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      // Of an outer job.
      {"C10D_TOKEN_FILE", "(unset)"},
      {"C10D_TERMINAL_COLUMNS", "(unset)"},
  };
  std::vector<std::string> names;
  for (const auto& [name, value] : expected) names.push_back(name);
  EXPECT_EQ(
      variables(names, {"-n", "2"}, 1,
                {{"C10D_RANK", "7"}, {"C10D_TOKEN_FILE", "x"}, {"C10D_TERMINAL_COLUMNS", "7"}}),
      expected);
}

TEST(RankEnvironment, StoreAndMasterPortDiffer) {
  const auto values = variables({"C10D_STORE", "MASTER_PORT", "C10D_JOB_ID"}, {}, 0);
  EXPECT_TRUE(values.at("C10D_STORE").starts_with("tcp://127.0.0.1:")) << values.at("C10D_STORE");
  EXPECT_NE(values.at("C10D_STORE"), "tcp://127.0.0.1:" + values.at("MASTER_PORT"));
  EXPECT_TRUE(values.at("C10D_JOB_ID").starts_with("c10d-"));
}

TEST(RankEnvironment, ThreadsAreTheUsersChoice) {
  EXPECT_EQ(variables({"OMP_NUM_THREADS"}, {}, 0, {{"OMP_NUM_THREADS", "3"}}).at("OMP_NUM_THREADS"),
            "3");
  EXPECT_EQ(variables({"OMP_NUM_THREADS"}, {"-n", "64"}, 63).at("OMP_NUM_THREADS"), "1");
}

TEST(RankEnvironment, SocketsOfNcclAreOnLoopbackUnlessTheUserChose) {
  const char* const name = "NCCL_SOCKET_IFNAME";
  EXPECT_EQ(variables({name}, {"-n", "2"}, 1).at(name), "lo");
  EXPECT_EQ(variables({name}, {"-n", "2"}, 1, {{name, "eth0"}}).at(name), "eth0");
  EXPECT_EQ(variables({name}, {"-n", "2", "-x", "NCCL_SOCKET_IFNAME=eth1"}, 1).at(name), "eth1");
}

TEST(RankEnvironment, TakesVariablesFromTheCommandLine) {
  const auto values =
      variables({"ONE", "TWO", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"},
                {"-x", "ONE=1", "--env=TWO=a=b", "--role", "worker", "--master_addr", "localhost",
                 "--master-port=4242", "--rdzv-id", "job7"},
                0);
  EXPECT_EQ(values.at("ONE"), "1");
  EXPECT_EQ(values.at("TWO"), "a=b");
  EXPECT_EQ(values.at("ROLE_NAME"), "worker");
  EXPECT_EQ(values.at("MASTER_ADDR"), "localhost");
  EXPECT_EQ(values.at("MASTER_PORT"), "4242");
  EXPECT_EQ(values.at("TORCHELASTIC_RUN_ID"), "job7");
}

// torchrun: "each worker sees its device as the first".
TEST(RankEnvironment, AVirtualLocalRankIsZeroAndSeesOneDevice) {
  const std::vector<std::string> names = {"LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "C10D_LOCAL_RANK",
                                          "LOCAL_WORLD_SIZE"};
  const auto of_rank_1 = [&](std::vector<std::string> options,
                             const std::map<std::string, std::string>& callers) {
    options.insert(options.end(), {"-n", "2", "--virtual_local_rank"});
    return variables(names, options, 1, callers);
  };
  std::map<std::string, std::string> expected = {{"LOCAL_RANK", "0"},
                                                 {"CUDA_VISIBLE_DEVICES", "6"},
                                                 {"C10D_LOCAL_RANK", "1"},
                                                 {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_EQ(of_rank_1({}, {{"CUDA_VISIBLE_DEVICES", "4,6"}}), expected);
  EXPECT_EQ(of_rank_1({"-x", "CUDA_VISIBLE_DEVICES=4,6"}, {}), expected);
  expected["CUDA_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(of_rank_1({}, {}), expected);
  const Ended ended =
      run_ranks({"-n", "2", "--virtual-local-rank", "true"}, {{"CUDA_VISIBLE_DEVICES", "4"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(contains(ended.err, "CUDA_VISIBLE_DEVICES=4 names 1 devices")) << ended.err;
}

TEST(RankEnvironment, AVariableWithoutAValueIsThatOfTheCaller) {
  EXPECT_EQ(variables({"COLOUR"}, {"-x", "COLOUR"}, 0, {{"COLOUR", "blue"}}).at("COLOUR"), "blue");
  const Ended unset = run_ranks({"-x", "COLOUR", C10D_PROBE, "variables", "COLOUR"});
  EXPECT_EQ(unset.code, 0);
  EXPECT_EQ(unset.out, "[0] COLOUR=(unset)\n");
  EXPECT_TRUE(contains(unset.err, "warning: -x COLOUR: COLOUR is not set here")) << unset.err;
}

TEST(RankEnvironment, TheTokenIsInheritedAndNowhereToBeSeen) {
  const Ended ended = run_ranks({"-n", "3", "--no-prefix", C10D_PROBE, "token"});
  const std::vector<std::string> lines = lines_of(ended.out);
  ASSERT_EQ(lines.size(), 3u) << ended.err;
  EXPECT_EQ(std::set(lines.begin(), lines.end()).size(), 1u) << ended.out;
  EXPECT_EQ(lines[0].substr(64), " hidden sealed");
  EXPECT_NE(lines[0], lines_of(run_ranks({"--no-prefix", C10D_PROBE, "token"}).out).at(0))
      << "a token per job";
}

TEST(RankEnvironment, TheStoreServesTheRanksAndNobodyElse) {
  const Ended ended = run_ranks({"-n", "2", "--no-prefix", C10D_PROBE, "store"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "not_authenticated\nnot_authenticated\n");
}

TEST(RankEnvironment, MasterPortCanBeServedByTheProgram) {
  EXPECT_EQ(run_ranks({"--no-prefix", C10D_PROBE, "master_port"}).out, "served\n");
}

TEST(RankEnvironment, NoDescriptorLeaksIntoTheRanks) {
  EXPECT_EQ(run_ranks({"-n", "2", "--no-prefix", C10D_PROBE, "descriptors"}).out,
            "0 1 2 token \n0 1 2 token \n");
}

}}}  // namespace c10d::v0
