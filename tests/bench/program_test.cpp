// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/programs.h"
#include "tests/bench/schema.h"

namespace c10d::bench { namespace {

// Iterations are counted, not timed: how fast the machine is must not decide.
constexpr const char* kTiny = " -n 2 -i 3 -w 1 --launches 2 --blocks 2 ";
// For compare, where neither controls nor ceilings are looked at.
constexpr const char* kNoControl = "--control off ";

TEST(Program, ComparesWithoutAWrongElement) {
  const TemporaryDirectory folder;
  const Ended ended = run(std::string("compare") + kTiny + kNoControl +
                          "-B native,memcpy all -s 8,4K --place both -v --json " +
                          (folder / "r.jsonl") + " --csv " + (folder / "r.csv") + " --md " +
                          (folder / "r.md") + " --report " + (folder / "r.html"));
  ASSERT_EQ(ended.code, 0) << ended.out;
  const Schema schema(C10D_SOURCE_DIR "/bench/schema/c10d-bench-1.schema.json");
  const std::vector<Json> lines = lines_of(folder / "r.jsonl");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.front()["t"], "run");
  EXPECT_EQ(lines.back()["t"], "end");
  EXPECT_EQ(lines.back()["complete"], true);
  std::set<std::string> ops;
  std::size_t cells = 0;
  for (const Json& line : lines) {
    EXPECT_EQ(schema.complaint(line), "") << line.dump();
    if (line["t"] != "cell") continue;
    ++cells;
    EXPECT_EQ(line["wrong"], 0) << line.dump();
    if (line["backend"] == "native") ops.insert(line["op"].get<std::string>());
  }
  EXPECT_EQ(ops.size(), 18U);
  // 17 ops with two sizes out of place, 9 of them in place too, barrier once; launches x blocks of
  // each.
  const std::size_t native = (17 * 2 + 9 * 2 + 1) * 4;
  EXPECT_EQ(cells, native + (17 * 2 + 9 * 2) * 4) << "memcpy has no barrier";
  EXPECT_NE(ended.out.find("exact against the oracle; result hash equal"), std::string::npos)
      << ended.out;
  EXPECT_NE(text_of(folder / "r.html").find("</html>"), std::string::npos);
  EXPECT_NE(text_of(folder / "r.md").find("### all_reduce f32 sum"), std::string::npos);
  EXPECT_NE(text_of(folder / "r.csv").find("all_reduce,native,f32,sum"), std::string::npos);
  EXPECT_EQ(run("report " + (folder / "r.jsonl") + " -o " + (folder / "again.html")).code, 0);
  EXPECT_NE(text_of(folder / "again.html").find("</html>"), std::string::npos);
  const std::string title = "\nall_reduce f32 sum, out of place";
  ASSERT_NE(ended.out.find(title), std::string::npos) << ended.out;
  EXPECT_NE(run("report " + (folder / "r.jsonl")).out.find(title), std::string::npos);
}

TEST(Program, DiffsTwoRunsAndReportsThemApart) {
  const TemporaryDirectory folder;
  for (const char* file : {"a.jsonl", "b.jsonl"})
    ASSERT_EQ(run(std::string("run") + kTiny + "-B native barrier --json " + (folder / file)).code,
              0);
  const std::string both = (folder / "a.jsonl") + " " + (folder / "b.jsonl");
  const Ended pooled = run("report " + both);
  EXPECT_EQ(pooled.code, 2);
  EXPECT_NE(pooled.out.find("c10d-bench diff OLD NEW"), std::string::npos) << pooled.out;
  const Ended diff = run("diff " + both);
  EXPECT_EQ(diff.code, 0) << diff.out;
  EXPECT_NE(diff.out.find("barrier"), std::string::npos) << diff.out;
  EXPECT_EQ(run("diff " + both + " --fail-above 10000%").code, 2) << "not a fraction";
  const Ended same =
      run("diff " + (folder / "a.jsonl") + " " + (folder / "a.jsonl") + " --fail-above 50%");
  EXPECT_EQ(same.code, 0) << same.out;
}

// Everything that may stand beside the cells does: figures, fits, controls with and without
// company.
TEST(Program, ComparesWithFiguresFitsAndControls) {
  const TemporaryDirectory folder;
  const Ended ended = run(std::string("compare") + kTiny +
                          "-B native,memcpy all_reduce -s 8,1K,4K,64K,256K --control solo --bind "
                          "none -v --json " +
                          (folder / "r.jsonl") + " --svg " + (folder / "figures"));
  ASSERT_EQ(ended.code, 0) << ended.out;
  const Schema schema(C10D_SOURCE_DIR "/bench/schema/c10d-bench-1.schema.json");
  std::map<std::string, int> kinds;
  for (const Json& line : lines_of(folder / "r.jsonl")) {
    EXPECT_EQ(schema.complaint(line), "") << line.dump();
    ++kinds[line["t"].get<std::string>()];
    if (line["t"] == "ctl") ++kinds["ctl " + line["kind"].get<std::string>()];
    if (line["t"] == "cell") {
      EXPECT_EQ(line["backend"].get<std::string>().find('~'), std::string::npos) << line.dump();
    }
    if (line["t"] == "end") {
      EXPECT_EQ(line["complete"], true);
    }
  }
  EXPECT_EQ(kinds["cell"], 2 * 5 * 4);
  EXPECT_EQ(kinds["fit"], 2);
  EXPECT_EQ(kinds["ctl aa"], 1);
  EXPECT_EQ(kinds["ctl solo"], 2);
  EXPECT_NE(ended.out.find("cross  native<->memcpy: "), std::string::npos) << ended.out;
  const std::string figure = text_of(folder / "figures/all_reduce-f32-sum-time.svg");
  EXPECT_NE(figure.find("</svg>"), std::string::npos);
}

TEST(Program, EveryStateOfTheBuffersIsCheckedAndNamed) {
  const TemporaryDirectory folder;
  const Ended ended = run(std::string("run") + kTiny +
                          "--launches 1 all -s 4K --place both --cache cold --concurrent 2 "
                          "--start-skew 20us --memory heap --bind core --json " +
                          (folder / "r.jsonl"));
  ASSERT_EQ(ended.code, 0) << ended.out;
  std::map<std::string, int> cells;
  for (const Json& line : lines_of(folder / "r.jsonl")) {
    if (line["t"] != "cell") continue;
    EXPECT_EQ(line["wrong"], 0) << line.dump();
    ++cells[line["cache"].get<std::string>() + " " + line["concurrent"].dump()];
  }
  // Two blocks each: 15 collectives, 9 of them in place too, two at once; ping-pong and window, one
  // at a time; the barrier has no buffers to be cold.
  const std::map<std::string, int> expected = {
      {"cold 2", 2 * 24}, {"cold 1", 2 * 2}, {"hot 2", 2 * 1}};
  EXPECT_EQ(cells, expected);
  EXPECT_NE(ended.out.find("all_reduce f32 sum, 2 at once, cold buffers"), std::string::npos)
      << ended.out;
}

TEST(Program, SaysWhatComputedBesideTheRanks) {
  const TemporaryDirectory folder;
  const Ended ended = run(std::string("run") + kTiny + "--launches 1 all_gather -s 4K --busy 2 " +
                          "--json " + (folder / "r.jsonl"));
  ASSERT_EQ(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("busy   2 processes computed beside the ranks"), std::string::npos)
      << ended.out;
  EXPECT_EQ(lines_of(folder / "r.jsonl").front()["busy"], 2);
}

TEST(Program, RotatesBuffersBesideHotOnes) {
  const Ended ended =
      run(std::string("run") + kTiny + "--launches 1 all_gather -s 4K --place in --cache auto");
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("all_gather f32, in place, 2 ranks"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("all_gather f32, in place, rotating buffers"), std::string::npos)
      << ended.out;
}

TEST(Program, RunsTheAlgorithmThatIsAskedFor) {
  const Ended ended = run(std::string("run") + kTiny +
                          "--launches 1 all_reduce broadcast -s 4K --algo two_shot/temporal "
                          "--columns p50,algo,wrong --equiv 5%");
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("W008 --control and --equiv"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("  two_shot/temporal/"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("not for broadcast"), std::string::npos) << ended.out;
  const Ended misspelt = run("run -n 2 -s 8 --algo two_shit");
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_NE(misspelt.out.find("did you mean two_shot?"), std::string::npos) << misspelt.out;
}

TEST(Program, ReplaysCellsOfAnEarlierRun) {
  const TemporaryDirectory folder;
  const std::string file = folder / "r.jsonl";
  ASSERT_EQ(run(std::string("compare") + kTiny + kNoControl +
                "--launches 1 -B native,memcpy all_reduce broadcast -s 8,4K --json " + file)
                .code,
            0);
  const Ended again = run("compare --replay " + file +
                          " --only broadcast:memcpy:4K --blocks 1 --json " + (folder / "s.jsonl"));
  ASSERT_EQ(again.code, 0) << again.out;
  int cells = 0;
  for (const Json& line : lines_of(folder / "s.jsonl")) {
    if (line["t"] != "cell") continue;
    ++cells;
    EXPECT_EQ(line["op"], "broadcast");
    EXPECT_EQ(line["bytes"], 4096);
    EXPECT_EQ(line["iters"], 3) << "as in the earlier run";
  }
  EXPECT_EQ(cells, 2) << "the base and the one that was asked for";
  EXPECT_EQ(run("compare --replay " + file + " --json " + file).code, 2) << "would overwrite it";
  EXPECT_EQ(run("report " + file + " -o " + file).code, 2) << "would overwrite it";
  EXPECT_EQ(lines_of(file).front()["t"], "run") << "and did not";
  const std::string third = folder / "t.jsonl";
  EXPECT_EQ(run("compare --replay " + (folder / "s.jsonl") + " --only all_reduce:memcpy:8 --json " +
                third)
                .code,
            0);
  const Json argv = lines_of(third).front()["argv"];
  EXPECT_EQ(std::count(argv.begin(), argv.end(), "--only"), 1) << argv;
  const Ended base = run("compare --replay " + file + " --only broadcast:native:4K --blocks 1");
  EXPECT_EQ(base.code, 0) << "a cell of the base, as a warning says it: " << base.out;
  const Ended other = run("compare --replay " + file + " -c all -qs 8 all_gather --dry-run");
  EXPECT_EQ(other.code, 0) << other.out;
  EXPECT_NE(other.out.find("cases     1 "), std::string::npos) << "typed ops win: " << other.out;
  std::ofstream(folder / "odd.jsonl") << R"({"t":5})"
                                         "\n"
                                         R"({"t":"run","argv":[1,2]})"
                                         "\n";
  const Ended odd = run("compare --replay " + (folder / "odd.jsonl"));
  EXPECT_EQ(odd.code, 2);
  EXPECT_NE(odd.out.find("no run record in it"), std::string::npos) << odd.out;
}

TEST(Program, CompareLooksForBackendsItself) {
  const Ended ended = run("compare -n 2 all_reduce -s 8 --dry-run");
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("backends  native "), std::string::npos) << ended.out;
  const Ended single = run("compare -n 2 -B native -s 8");
  EXPECT_EQ(single.code, 2);
  EXPECT_NE(single.out.find("c10d-bench: compare -B native: nothing to compare with"),
            std::string::npos)
      << single.out;
}

TEST(Program, MistakesAreSaidInItsOwnName) {
  for (const char* line : {"run --blcoks 3", "runn", "all_reduce", "-n 2 all_reduce", "run -g 2",
                           "run --blocks many", "list", "overlap -n 2", "explain send 1K"}) {
    const Ended ended = run(line);
    EXPECT_EQ(ended.code, 2) << line;
    EXPECT_TRUE(ended.out.starts_with("c10d-bench: ")) << ended.out;
  }
  EXPECT_NE(run("run --blcoks 3").out.find("did you mean --blocks?"), std::string::npos);
  EXPECT_NE(run("overlap -n 2").out.find("unknown option -n"), std::string::npos);
  for (const auto& [line, words] :
       {std::pair("all_reduce", "write run all_reduce"), std::pair("allreduce", "run all_reduce?"),
        std::pair("-n 2 all_reduce", "write run -n"), std::pair("run -g 2", "no option -g: -n N"),
        std::pair("run -m 64", "-b MIN -e MAX"), std::pair("run -i 1M", "--step 1M")}) {
    const std::string said = run(line).out;
    EXPECT_NE(said.find(words), std::string::npos) << said;
  }
}

TEST(Program, PrintsTheMachineTablesAndNotes) {
  const std::string line = std::string("run") + kTiny + "--launches 1 -s 3 ";
  const Ended brief = run(line, "2>/dev/null");
  EXPECT_EQ(brief.code, 0);
  const std::size_t title = brief.out.find("\nall_reduce f32 sum, out of place");
  EXPECT_TRUE(brief.out.starts_with("host ")) << brief.out;
  EXPECT_EQ(brief.out.find('\n') + 1, title) << "one line: " << brief.out;
  EXPECT_NE(brief.out.find("note   S is whole elements on each rank: 3 B of all_reduce f32 is 4 B"),
            std::string::npos)
      << brief.out;
  EXPECT_EQ(run(line + "-q", "2>/dev/null").out.find("\nall_reduce"), 0U) << "tables only";
  const std::string full = run(line + "-v").out;
  for (const char* label :
       {"\nlibs ", "\ncheck ", "\nnote ", "\nagain ", "launch 1 block 2 native"})
    EXPECT_NE(full.find(label), std::string::npos) << label << " in " << full;
}

TEST(Program, RefusesMoreRanksThanItsUserMeant) {
  cpu_set_t cpus;
  ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  const int most = 4 * CPU_COUNT(&cpus);
  if (most >= 1024) GTEST_SKIP() << "as many ranks as -n takes";
  const std::string more = std::to_string(most + 1);
  const Ended refused = run("run -s 8 --dry-run -n " + more);
  EXPECT_EQ(refused.code, 2);
  for (const std::string& words : {more + " ranks", std::to_string(CPU_COUNT(&cpus)) + " CPU",
                                   std::string("--oversubscribe"), "-i " + more})
    EXPECT_NE(refused.out.find(words), std::string::npos) << refused.out;
  EXPECT_EQ(run("run -s 8 --dry-run --oversubscribe -n " + more).code, 0);
  EXPECT_EQ(run("run -s 8 --dry-run -n " + std::to_string(most)).code, 0);
}

TEST(Program, AFullDiskIsSaid) {
  const Ended json = run(std::string("run") + kTiny + "--launches 1 -s 8 --json /dev/full");
  EXPECT_EQ(json.code, 2) << json.out;
  EXPECT_NE(json.out.find("--json /dev/full: No space left on device"), std::string::npos)
      << json.out;
  const Ended out = run("list ops", "2>&1 >/dev/full");
  EXPECT_EQ(out.code, 1) << out.out;
  EXPECT_NE(out.out.find("stdout: cannot be written"), std::string::npos) << out.out;
  EXPECT_EQ(run_line(C10D_RUN " --help 2>&1 >/dev/full").code, 1);
}

// Else what is opened next, the JSON file, takes its number and gets the table.
TEST(Program, AClosedStdoutIsSaid) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended =
      run(std::string("run") + kTiny + "--launches 1 -s 8 --json " + json, "2>&1 >&-");
  EXPECT_EQ(ended.code, 1) << ended.out;
  EXPECT_NE(ended.out.find("c10d-bench: stdout is closed"), std::string::npos) << ended.out;
  EXPECT_EQ(text_of(json), "");
  const Ended others = run("list ops", "2>&-");
  EXPECT_EQ(others.code, 0);
  EXPECT_NE(others.out.find("all_reduce"), std::string::npos) << others.out;
}

TEST(Program, RunsEveryDtypeAndReduceOp) {
  const Ended ended = run(std::string("run") + kTiny +
                          "--launches 1 all_reduce reduce_scatter -d all -o all -s 64");
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("bf16"), std::string::npos);
}

TEST(Program, RunsOddNumbersOfRanksAndOtherRoots) {
  const Ended ended = run("run -n 3 -i 3 -w 0 --launches 1 --blocks 1 all -s 4K -r all");
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("root 2"), std::string::npos);
}

// Sizes below and above where each rank adds up a half, and a float that does not come whole.
TEST(Program, APlainLoopAroundAConnectionHasTheSameBits) {
  const TemporaryDirectory folder;
  const Ended ended = run(std::string("compare") + kTiny + kNoControl +
                          "-B native,raw:tcp all_reduce -s 4,8,20K,32K,100004,3M --place both "
                          "--json " +
                          (folder / "r.jsonl"));
  if (ended.out.find("skip   raw:tcp:") != std::string::npos)
    GTEST_SKIP() << "a static build has no modules";
  ASSERT_EQ(ended.code, 0) << ended.out;
  std::map<std::string, std::map<std::string, int>> hashes;  // of a cell, from which backends
  for (const Json& line : lines_of(folder / "r.jsonl")) {
    if (line["t"] != "cell") continue;
    EXPECT_EQ(line["wrong"], 0) << line.dump();
    const std::string cell = line["bytes"].dump() + " " + line["place"].dump();
    ++hashes[cell + " " + line["hash"].dump()][line["backend"].get<std::string>()];
  }
  EXPECT_EQ(hashes.size(), 12U) << "other bits";
  for (const auto& [cell, backends] : hashes) EXPECT_EQ(backends.size(), 2U) << cell;
  const Ended three = run("run -n 3 -i 3 --launches 1 -B raw:tcp all_reduce -s 8");
  EXPECT_NE(three.out.find("raw:tcp is one connection between two ranks, and there are 3"),
            std::string::npos)
      << three.out;
}

TEST(Program, WhatIsNotThereIsARowAndNoFailure) {
  const Ended ended = run(std::string("compare") + kTiny + kNoControl +
                          "--launches 1 -B native,no_such_backend -s 8");
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("skip   no_such_backend:"), std::string::npos) << ended.out;
  EXPECT_EQ(run(std::string("run") + kTiny + "--launches 1 -B no_such_backend -s 8").code, 77);
}

TEST(Program, MistakesAreExitCodeTwoAndSaySo) {
  const Ended ended = run("run allreduce");
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.out.find("did you mean all_reduce?"), std::string::npos) << ended.out;
  EXPECT_EQ(run("run -n 2 --root 5 broadcast -s 8").code, 2);
  EXPECT_EQ(run("run -n 2 -s 8 --json /no/such/folder/f").code, 2);
  EXPECT_EQ(run("report /no/such/file -o /dev/null").code, 2);
  const Ended misspelt = run("run -n 2 -B nativ -s 8");
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_NE(misspelt.out.find("did you mean native?"), std::string::npos) << misspelt.out;
  EXPECT_EQ(run("run -n 2 -s 8 --columns p50,foo").code, 2);
  EXPECT_EQ(run("run -n 2 -s 8 --dry-run --csv -").code, 2) << "only --json writes to stdout";
  const Ended twice = run("run -n 2 -s 8 --dry-run --json f --report f");
  EXPECT_EQ(twice.code, 2);
  EXPECT_NE(twice.out.find("--report f: --json writes there too"), std::string::npos) << twice.out;
  EXPECT_EQ(run("run -n 2 -b 1K -e 64M --factor 1.0000001").code, 2) << "too many sizes";
  const Ended empty = run("run -n 2 -s 8 -d i32 -o avg");
  EXPECT_EQ(empty.code, 2);
  EXPECT_NE(empty.out.find("avg needs a floating point dtype"), std::string::npos) << empty.out;
}

TEST(Program, PrintsAPlanAndStartsNothing) {
  const Ended ended = run("compare -n 4 -B native,gloo all --dry-run");
  EXPECT_EQ(ended.code, 0);
  EXPECT_NE(ended.out.find("ranks     4"), std::string::npos) << ended.out;
}

TEST(Program, JsonOnStdoutIsNothingButJson) {
  const Ended ended = run(std::string("run") + kTiny + "--launches 1 -s 8 --json -", "2>/dev/null");
  EXPECT_EQ(ended.code, 0);
  std::istringstream out(ended.out);
  Json last;
  for (std::string line; std::getline(out, line);) last = Json::parse(line);
  EXPECT_EQ(last["t"], "end");
}

// In the middle: the launch ends, what was measured is written, and the code says why.
TEST(Program, AnInterruptedRunKeepsItsData) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended =
      interrupted({C10D_BENCH, "run", "-n", "2", "-s", "1K", "--time", "60s", "--blocks", "600"},
                  json, SIGTERM, "\"cell\"");
  EXPECT_EQ(ended.code, 143) << ended.out;
  EXPECT_NE(ended.out.find("all_reduce f32 sum"), std::string::npos)
      << "the partial table: " << ended.out;
  const std::vector<Json> lines = lines_of(json);
  EXPECT_EQ(lines.back()["t"], "end");
  EXPECT_EQ(lines.back()["complete"], false);
}

TEST(Program, ARankThatIsKilledIsNamed) {
  const TemporaryDirectory folder;
  const Ended ended =
      interrupted({C10D_BENCH, "run", "-n", "2", "-s", "1K", "--time", "60s", "--blocks", "600"},
                  folder / "r.jsonl", SIGKILL, "\"cell\"", a_rank_of);
  EXPECT_EQ(ended.code, 137) << ended.out;
  EXPECT_NE(ended.out.find("was killed by signal 9 (Killed)"), std::string::npos) << ended.out;
}

// Before there is a rank: while plain copies are measured, as a rule.
TEST(Program, ARunThatIsInterruptedBeforeItsFirstCellLeavesWholeFiles) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended = interrupted(
      {C10D_BENCH, "compare", "-B", "native,memcpy", "-n", "2", "-s", "1K", "--time", "60s",
       "--blocks", "600", "--csv", folder / "r.csv", "--report", folder / "r.html"},
      json, SIGINT, "\"run\"");
  EXPECT_EQ(ended.code, 130) << ended.out;
  const Schema schema(C10D_SOURCE_DIR "/bench/schema/c10d-bench-1.schema.json");
  const std::vector<Json> lines = lines_of(json);
  for (const Json& line : lines) EXPECT_EQ(schema.complaint(line), "") << line.dump();
  EXPECT_EQ(lines.back()["t"], "end");
  EXPECT_EQ(lines.back()["complete"], false);
  EXPECT_EQ(lines.back()["exit"], 130);
  EXPECT_NE(text_of(folder / "r.csv").find("op,"), std::string::npos);
  EXPECT_NE(text_of(folder / "r.html").find("</html>"), std::string::npos);
}

TEST(Program, ExplainsWhatNativeWouldDo) {
  const TemporaryDirectory folder;
  const std::string here = "env XDG_CACHE_HOME=" + (folder / "cache") + " " + C10D_BENCH;
  Ended ended = run_line(here + " explain all_reduce 4K -n 2 2>&1");
  EXPECT_EQ(ended.code, 0) << ended.out;
  for (const char* word : {"plan ", "predicted ", "by the built-in model", "bound ", "measured "})
    EXPECT_NE(ended.out.find(word), std::string::npos) << ended.out;
  EXPECT_EQ(run_line(here + " explain barrier 8 -n 2 2>&1").code, 2);
  EXPECT_EQ(run_line(here + " explain all_reduce 4T -n 2 2>&1").code, 2) << "no such memory";
  EXPECT_EQ(run_line(here + " explain all_reduce much -n 2 2>&1").code, 2);
  ended = run_line(here + " explain all_gather 4 -n 2 2>&1");
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.out.find("a multiple of 8 bytes"), std::string::npos) << ended.out;
}

TEST(Program, HelpFitsIntoEightyColumns) {
  for (const char* command : {"", "compare", "run", "tune", "explain", "train", "replay", "overlap",
                              "ceiling", "store", "list", "doctor", "diff", "report"})
    for (const char* option : {" --help", " --help-all"}) {
      const Ended help = run(std::string(command) + option);
      EXPECT_EQ(help.code, 0) << help.out;
      EXPECT_EQ(help.out.find("TEXT"), std::string::npos) << "a value without a name: " << help.out;
      std::istringstream lines(help.out);
      for (std::string line; std::getline(lines, line);)
        EXPECT_LE(line.size(), 80U) << command << ": " << line;
    }
}

TEST(Program, HelpFitsOntoAScreen) {
  for (const char* command : {"", "compare", "run"}) {
    const std::string help = run(std::string(command) + " --help").out;
    EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 40) << help;
  }
  const std::string usual = run("run --help").out;
  EXPECT_NE(usual.find("-b,--min SIZE"), std::string::npos) << usual;
  EXPECT_EQ(usual.find("--start-skew"), std::string::npos) << usual;
  const std::string all = run("run --help-all").out;
  for (const char* option : {"-b,--min SIZE", "--start-skew TIME", "--bind auto|set|core|none"})
    EXPECT_NE(all.find(option), std::string::npos) << all;
  EXPECT_EQ(all.find("--worker"), std::string::npos) << "between the program and its ranks";
}

TEST(Program, CompletesItsWords) {
  const auto completed = [](const char* program, const std::string& words) {
    const std::string name = std::filesystem::path(program).filename();
    std::string function = "_" + name;
    std::replace(function.begin(), function.end(), '-', '_');
    return run_line("bash -c 'source <(" + std::string(program) +
                    " --print-completion); complete -p " + name +
                    " >/dev/null || exit; COMP_WORDS=(" + name + " " + words +
                    "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); " + function +
                    "; echo ${COMPREPLY[*]}' 2>&1")
        .out;
  };
  EXPECT_EQ(completed(C10D_BENCH, "com"), "compare\n");
  EXPECT_EQ(completed(C10D_BENCH, "run all_r"), "all_reduce\n");
  EXPECT_EQ(completed(C10D_BENCH, "run --bind s"), "set\n");
  EXPECT_EQ(completed(C10D_BENCH, "run --bind = c"), "core\n");
  EXPECT_EQ(completed(C10D_BENCH, "compare --minb"), "\n") << "only this program's spelling";
  EXPECT_EQ(completed(C10D_BENCH, "compare --min"), "--min --min-effect\n");
  EXPECT_EQ(completed(C10D_BENCH, "run --json all_r"), "\n") << "a file";
  EXPECT_EQ(completed(C10D_BENCH, "list o"), "ops\n");
  EXPECT_EQ(completed(C10D_BENCH, "--vers"), "--version\n");
  EXPECT_EQ(completed(C10D_RUN, "--nproc"), "--nproc-per-node\n");
}

TEST(Program, HasAManualPageWithAllThatHelpHas) {
  for (const auto& [program, commands] :
       {std::pair(C10D_BENCH, std::vector<std::string>{"", "run", "train", "diff"}),
        std::pair(C10D_RUN, std::vector<std::string>{""})}) {
    const Ended manual = run_line(std::string(program) + " --print-man");
    EXPECT_EQ(manual.code, 0);
    EXPECT_TRUE(manual.out.starts_with(".TH c10d")) << manual.out;
    std::string plain = manual.out;
    for (std::size_t at; (at = plain.find('\\')) != std::string::npos;)
      plain.erase(at, plain[at + 1] == 'f' ? 3 : 1);  // \\fB and \\-
    for (const std::string& command : commands) {
      const std::string all = command.empty() ? " --help" : " " + command + " --help-all";
      std::istringstream words(run_line(program + all).out);
      for (std::string word; words >> word;)
        if (word.starts_with("--") || word.find(",--") != std::string::npos) {
          std::istringstream names(word);
          for (std::string name; std::getline(names, name, ',');)
            EXPECT_NE(plain.find(name), std::string::npos) << name;
        }
    }
  }
}

// Whether rows are within their bounds is for a quiet machine to say.
TEST(Program, CrossChecksItselfAgainstPlainLoops) {
  const Ended ended = run_with_mpi("doctor --cross-check --launches 1 --time 0.01s --python false");
  EXPECT_TRUE(ended.code == 0 || ended.code == 1) << ended.out;
  std::set<std::string> sizes;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("native    plain loop")) sizes.insert(line.substr(20, 10));
  EXPECT_EQ(sizes.size(), 4U) << ended.out;
  EXPECT_NE(ended.out.find("PyTorch     skipped: exit code 1"), std::string::npos) << ended.out;
  for (const char* words : {"2 ranks, 1 launch;", "rows outside: there the benchmark and the loop"})
    EXPECT_NE(ended.out.find(words), std::string::npos) << ended.out;
}

TEST(Program, CrossChecksOtherMpisBehindTheirBarriers) {
  if (run_line("mpirun.mpich --version 2>&1").code != 0)
    GTEST_SKIP() << "no mpirun.mpich (Debian: mpich)";
  const Ended ended = run_with_mpi(
      "doctor --cross-check --launches 1 --time 0.01s --python false --sync own --mpi mpich");
  EXPECT_TRUE(ended.code == 0 || ended.code == 1) << ended.out;
  for (const char* words :
       {"each op after a barrier of its library", "native         plain loop       8 B",
        "raw:mpi@mpich  plain loop       8 B", "raw:mpi@mpich  plain loop    16 MiB"})
    EXPECT_NE(ended.out.find(words), std::string::npos) << words << '\n' << ended.out;
  const Ended refused = run_with_mpi("doctor --cross-check --mpi /usr/share");
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_NE(refused.out.find("in this folder"), std::string::npos) << refused.out;
}

TEST(Program, RefusesOptionsOfTheCrossCheckWhereTheyCountNothing) {
  const auto complaint = [](const std::string& options) {
    const Ended ended = run_line(C10D_BENCH " doctor " + options + " 2>&1");
    EXPECT_EQ(ended.code, 2) << options;
    return ended.out;
  };
  EXPECT_NE(complaint("--cross-check --json").find("--cross-check excludes --json"),
            std::string::npos);
  for (const char* option : {"--launches 3", "--time 0.1s", "--python python3", "--device cuda",
                             "--mpi mpich", "--sync own"}) {
    const std::string out = complaint(option);
    EXPECT_NE(out.find("requires --cross-check"), std::string::npos) << out;
  }
}

TEST(Program, ListsAndDiagnoses) {
  EXPECT_NE(run("list ops").out.find("all_reduce"), std::string::npos);
  EXPECT_TRUE(Json::parse(run("list backends --json").out)["backends"].contains("native"));
  EXPECT_TRUE(Json::parse(run("doctor --json").out).contains("machine"));
  EXPECT_NE(run("list algos").out.find("two_shot/{"), std::string::npos);
  EXPECT_NE(run("list checks").out.find("first"), std::string::npos);
  EXPECT_NE(run("doctor").out.find("topology"), std::string::npos);
  EXPECT_EQ(run("list nonsense").code, 2);
}

}}  // namespace c10d::bench
