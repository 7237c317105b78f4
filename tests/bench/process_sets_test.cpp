// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/programs.h"
#include "tests/bench/schema.h"

namespace c10d::bench { namespace {

// Iterations are counted, not timed: how fast the machine is must not decide.
constexpr const char* kTinySets =
    " -n 2 -i 3 -w 1 --launches 2 --blocks 1 --control off all_reduce ";

std::vector<Json> of_kind(const std::vector<Json>& lines, const char* kind) {
  std::vector<Json> found;
  for (const Json& line : lines)
    if (line["t"] == kind) found.push_back(line);
  return found;
}

// Launch and column of each cell, in the order in which they were measured.
std::vector<std::pair<int, std::string>> order_of(const std::vector<Json>& lines) {
  std::vector<std::pair<int, std::string>> order;
  for (const Json& cell : of_kind(lines, "cell"))
    order.emplace_back(cell["launch"].get<int>(), cell["backend"].get<std::string>());
  return order;
}

void expect_refused(const std::string& arguments, const char* because) {
  const Ended ended = run(arguments);
  EXPECT_EQ(ended.code, 2) << arguments << ": " << ended.out;
  EXPECT_NE(ended.out.find(because), std::string::npos) << arguments << ": " << ended.out;
}

TEST(ProcessSets, TwoBuildsTakeTurnsEachInItsOwnEnvironment) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended = run(std::string("compare --against self --env A:C10D_NATIVE_PLAN=one_shot "
                                      "--env B:C10D_NATIVE_PLAN=two_shot -s 4K") +
                          kTinySets + "--json " + json + " --report " + (folder / "r.html"));
  ASSERT_EQ(ended.code, 0) << ended.out;
  const Schema schema(C10D_SOURCE_DIR "/bench/schema/c10d-bench-1.schema.json");
  const std::vector<Json> lines = lines_of(json);
  for (const Json& line : lines) EXPECT_EQ(schema.complaint(line), "") << line.dump();
  using Order = std::vector<std::pair<int, std::string>>;
  EXPECT_EQ(order_of(lines),
            (Order{{0, "native@A"}, {0, "native@B"}, {1, "native@B"}, {1, "native@A"}}));
  for (const Json& cell : of_kind(lines, "cell"))
    EXPECT_TRUE(cell["algo"].get<std::string>().starts_with(
        cell["backend"] == "native@A" ? "one_shot" : "two_shot"))
        << cell.dump();
  std::map<std::string, std::string> plans;
  for (const Json& environment : of_kind(lines, "env"))
    plans[environment["set"]] = environment["vars"]["C10D_NATIVE_PLAN"];
  EXPECT_EQ(plans, (std::map<std::string, std::string>{{"A", "one_shot"}, {"B", "two_shot"}}));
  const Json sets = lines.front()["sets"];
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_EQ(sets[1]["side"], "B");
  EXPECT_EQ(sets[1]["environment"], Json::array({"C10D_NATIVE_PLAN=two_shot"}));
  const std::vector<Json> compared = of_kind(lines, "cmp");
  ASSERT_EQ(compared.size(), 1U);
  EXPECT_EQ(compared[0]["base"], "native@A");
  EXPECT_EQ(compared[0]["other"], "native@B");
  EXPECT_EQ(lines.back()["complete"], true);
  EXPECT_NE(ended.out.find("native@A (base)"), std::string::npos) << ended.out;
  EXPECT_NE(run("report " + json).out.find("native@A (base)"), std::string::npos);
  EXPECT_NE(text_of(folder / "r.html").find("native@B / native@A"), std::string::npos);
}

TEST(ProcessSets, EachBackendIsComparedWithItselfInTheOtherBuild) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const std::string command = std::string("compare --against ") + C10D_BENCH + kTinySets +
                              "-B native,memcpy -s 8,4K --json " + json;
  ASSERT_EQ(run(command + " --only all_reduce:native@B:4K,memcpy:4K").code, 0);
  std::map<std::string, std::string> bases;
  for (const Json& compared : of_kind(lines_of(json), "cmp")) {
    EXPECT_EQ(compared["bytes"], 4096);
    bases[compared["other"]] = compared["base"];
  }
  EXPECT_EQ(bases, (std::map<std::string, std::string>{{"native@B", "native@A"},
                                                       {"memcpy@B", "memcpy@A"}}));
}

TEST(ProcessSets, AnInterruptedRunLeavesAWholeFile) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended = interrupted({C10D_BENCH, "compare", "--against", "self", "-n", "2", "-s",
                                   "1K", "--time", "60s", "--blocks", "600", "--control", "off"},
                                  json, SIGINT, "\"cell\"");
  EXPECT_EQ(ended.code, 128 + SIGINT) << ended.out;
  const std::vector<Json> lines = lines_of(json);
  EXPECT_EQ(lines.back()["t"], "end") << ended.out;
  EXPECT_EQ(lines.back()["complete"], false);
}

TEST(ProcessSets, WhatCannotBeComparedIsRefusedWithTheReason) {
  expect_refused("compare --against /no/such/folder", "no c10d-bench there");
  expect_refused("compare --against /bin/false", "is no c10d-bench that runs here");
  expect_refused("compare --env B:LD_PRELOAD", "write A:NAME=VALUE");
  expect_refused("compare --env C:A=1", "write A:NAME=VALUE");
  expect_refused("run --against self", "options of c10d-bench compare");
  const Ended launched = run_line(C10D_RUN " -n 2 " C10D_BENCH " compare --against self 2>&1");
  EXPECT_EQ(launched.code, 2) << launched.out;
  EXPECT_NE(launched.out.find("has started the ranks already"), std::string::npos) << launched.out;
}

TEST(ProcessSets, AnMpiThatIsNotThereIsNamed) {
  expect_refused("run -B native@mpich", "only mpi and raw:mpi take an @");
  expect_refused("run -B mpi@lam", "which MPI?");
  expect_refused("run -B mpi@/usr/share", "no lib/libmpi.so.40 or lib/libmpi.so.12 in this folder");
  expect_refused("run -B mpi@/no/libmpi.so.12", "/no/libmpi.so.12: cannot open shared object file");
  Dl_info libc{};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &libc), 0);
  expect_refused(std::string("run -B mpi@") + libc.dli_fname, "this library is no MPI");
  const Ended ended = run_line("env PATH=/no " C10D_BENCH " run -B native,mpi@mpich 2>&1");
  EXPECT_EQ(ended.code, 2) << ended.out;
  EXPECT_NE(ended.out.find("no mpirun of MPICH on PATH"), std::string::npos) << ended.out;
}

TEST(ProcessSets, EachMpiIsStartedByItsOwnLauncher) {
  for (const char* mpirun : {"mpirun.openmpi", "mpirun.mpich"})
    if (run_line(std::string(mpirun) + " --version 2>&1").code != 0)
      GTEST_SKIP() << "no " << mpirun << " (Debian: openmpi-bin mpich)";
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended =
      run_with_mpi(std::string("compare -B native,mpi@openmpi,mpi@mpich,raw:mpi@mpich -s 4K") +
                   kTinySets + "--json " + json);
  const std::vector<Json> lines = lines_of(json);
  for (const Json& skip : of_kind(lines, "skip"))
    if (skip["code"] == "unavailable") GTEST_SKIP() << skip["reason"];
  ASSERT_EQ(ended.code, 0) << ended.out;
  EXPECT_EQ(of_kind(lines, "cell").size(), 8U);
  EXPECT_EQ(of_kind(lines, "cmp").size(), 3U);
  for (const Json& environment : of_kind(lines, "env")) {
    const std::string which = environment["set"];
    const std::string about = environment["libs"]["mpi@" + which]["about"];
    EXPECT_NE(about.find(which == "openmpi" ? "Open MPI" : "MPICH"), std::string::npos) << about;
  }
}

}}  // namespace c10d::bench
