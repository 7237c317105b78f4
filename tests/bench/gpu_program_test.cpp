// SPDX-License-Identifier: BSD-3-Clause
// c10d-bench --device cuda from outside, on the stand-ins for the driver and NCCL.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "c10d/env.h"
#include "tests/bench/programs.h"
#include "tests/bench/schema.h"

namespace c10d::bench { namespace {

constexpr const char* kTiny =
    " --device cuda -i 3 -w 1 --launches 1 --blocks 1 --cache hot --control off ";

const std::string kFakeTorch =
    "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=" C10D_SOURCE_DIR "/tests/bench/fake_torch";

Ended run_with(const std::string& environment, const std::string& arguments) {
  return run_line("env " + environment + " " C10D_BENCH " " + arguments + " 2>&1");
}

std::vector<Json> checked_lines_of(const std::string& path) {
  const Schema schema(C10D_SOURCE_DIR "/bench/schema/c10d-bench-1.schema.json");
  std::vector<Json> lines = lines_of(path);
  for (const Json& line : lines) EXPECT_EQ(schema.complaint(line), "") << line.dump();
  return lines;
}

double number_of(const Json& line, const char* name) {
  return line.at(name).is_number() ? line.at(name).get<double>() : NAN;
}

TEST(Gpu, BothColumnsAreTimedCheckedAndLabelled) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended = run(std::string("compare") + kTiny +
                          "-n 2 -B nccl,raw:nccl all_reduce all_gather -s 8,64K --json " + json +
                          " --csv " + (folder / "r.csv") + " --report " + (folder / "r.html"));
  ASSERT_EQ(ended.code, 0) << ended.out;
  std::map<std::string, int> kinds;
  std::map<std::string, std::set<std::string>> hashes;
  for (const Json& line : checked_lines_of(json)) {
    const std::string kind = line["t"];
    ++kinds[kind == "ceil" ? line["kind"].get<std::string>() : kind];
    if (kind == "run") {
      EXPECT_EQ(line["device"], "cuda");
    }
    if (kind == "env") {
      EXPECT_EQ(line["driver"]["path"], env("C10D_CUDA_LIBRARY").value_or(""));
      ASSERT_EQ(line["gpus"].size(), 2U);
      EXPECT_NE(line["gpus"][0]["uuid"], line["gpus"][1]["uuid"]);
      EXPECT_EQ(line["gpu"], line["gpus"][1]["name"]);
    }
    if (kind == "cell") {
      EXPECT_EQ(line["device"], "cuda");
      EXPECT_EQ(line["placement"], "gpu_per_rank");
      EXPECT_EQ(line["wrong"], 0) << line.dump();
      EXPECT_GT(number_of(line, "cpu_us"), 0) << line.dump();
      EXPECT_GT(number_of(line["us"], "p50"), 0) << line.dump();
      EXPECT_GT(number_of(line["gbps"], "bus"), 0) << line.dump();
      EXPECT_GT(line["burst"], 1) << "a batch";
      hashes[line["op"].get<std::string>() + line["bytes"].dump()].insert(line["hash"]);
    }
    if (kind == "cmp") {
      EXPECT_GT(number_of(line, "ratio"), 0) << line.dump();
    }
    if (kind == "warn" && line["code"] == "W022") ++kinds["W022"];
  }
  EXPECT_EQ(kinds["cell"], 2 * 2 * 2);
  EXPECT_EQ(kinds["cmp"], 2 * 2);
  EXPECT_EQ(kinds["device_copy"], 2) << "one of each size";
  EXPECT_EQ(kinds["W022"], 1) << "no time of the stand-in is a GPU's";
  EXPECT_EQ(hashes.size(), 4U);
  for (const auto& [cell, of_columns] : hashes) EXPECT_EQ(of_columns.size(), 1U) << cell;
  for (const std::string& text : {ended.out, run("report " + json).out})
    for (const char* word : {"GPU copy", "cpu us", "%ceil", "rank 1 on cuda:1", "libfake_cuda"})
      EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
  EXPECT_NE(text_of(folder / "r.csv").find(",cuda,gpu_per_rank,"), std::string::npos);
  EXPECT_NE(text_of(folder / "r.html").find("% of GPU copy"), std::string::npos);
  EXPECT_EQ(run("diff " + json + " " + json).code, 0);
}

TEST(Gpu, TheCopyBeyondTheL2IsMeasuredInTheSameRun) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended =
      run(std::string("compare") + kTiny + "--control on -n 1 barrier -v --json " + json);
  ASSERT_EQ(ended.code, 0) << ended.out;
  double gbps = 0;
  for (const Json& line : checked_lines_of(json)) {
    if (line["t"] == "ceil" && line["kind"] == "device_copy" && line["level"] == "DRAM")
      gbps = number_of(line, "gbps");
    if (line["t"] == "cell") {
      EXPECT_EQ(line["placement"], "one_gpu");
      EXPECT_TRUE(line["gbps"]["bus"].is_null());
    }
  }
  EXPECT_GT(gbps, 0);
  EXPECT_NE(ended.out.find("GPU copy DRAM"), std::string::npos) << ended.out;
}

class Calls : public testing::TestWithParam<const char*> {};

TEST_P(Calls, EveryOpIsRightOrSkippedWithItsReason) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended = run(std::string("run") + kTiny + GetParam() +
                          " -n 2 -B nccl,raw:nccl all -s 4K --place both --json " + json);
  ASSERT_EQ(ended.code, 0) << ended.out;
  std::map<std::string, std::set<std::string>> ops, skipped;
  for (const Json& line : checked_lines_of(json)) {
    if (line["t"] == "cell") {
      EXPECT_EQ(line["wrong"], 0) << line.dump();
      ops[line["backend"]].insert(line["op"]);
    }
    if (line["t"] == "skip") {
      EXPECT_NE(line["reason"], "") << line.dump();
      skipped[line["backend"]].insert(line["op"]);
    }
  }
  EXPECT_EQ(skipped["nccl"], std::set<std::string>{"isend"});
  EXPECT_EQ(ops["nccl"].size(), 17U);
  EXPECT_EQ(skipped["raw:nccl"],
            (std::set<std::string>{"isend", "all_gather_v", "reduce_scatter_v", "gather_v",
                                   "scatter_v", "all_to_all_v", "scan", "exscan"}));
  EXPECT_EQ(ops["raw:nccl"].size(), 10U);
}

INSTANTIATE_TEST_SUITE_P(Gpu, Calls, testing::Values("", "-G 2"));

// Of a graph all ops are checked: on one set of buffers, out of place and in place, and on many.
TEST(Gpu, OpsInGraphsAreTimedCheckedAndLabelled) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  for (const auto& [what, count] : {std::pair("all_reduce send -s 64K --place both", 3),
                                    std::pair("all_reduce -s 1M --place both --cache rotate", 2)}) {
    const Ended ended =
        run(std::string("compare") + kTiny + "-G 3 -n 2 -B nccl,raw:nccl " + what + " --json " +
            json + " --csv " + (folder / "r.csv") + " --report " + (folder / "r.html"));
    ASSERT_EQ(ended.code, 0) << ended.out;
    std::map<std::string, int> cells;
    for (const Json& line : checked_lines_of(json)) {
      if (line["t"] == "run") {
        EXPECT_EQ(line["graph_ops"], 3);
      }
      if (line["t"] != "cell") continue;
      ++cells[line["backend"]];
      EXPECT_EQ(line["graph_ops"], 3);
      EXPECT_EQ(line["burst"], 21) << "as many graphs as hold a batch of 20 ops";
      EXPECT_EQ(line["wrong"], 0) << line.dump();
      EXPECT_GT(number_of(line["us"], "p50"), 0) << line.dump();
      EXPECT_GT(number_of(line, "cpu_us"), 0) << line.dump();
    }
    EXPECT_EQ(cells, (std::map<std::string, int>{{"nccl", count}, {"raw:nccl", count}}));
    for (const std::string& text : {ended.out, run("report " + json).out})
      EXPECT_NE(text.find(", CUDA graphs of 3 ops"), std::string::npos) << text;
    EXPECT_NE(text_of(folder / "r.csv").find(",3,\n"), std::string::npos);
    EXPECT_NE(text_of(folder / "r.html").find("Ops per CUDA graph: 3;"), std::string::npos);
  }
}

// Which functions of the driver are called shows by making them fail.
TEST(Gpu, GraphsAreWhatIsLaunched) {
  const std::string line = std::string("run") + kTiny + "-n 2 all_reduce -s 64 -B ";
  for (const auto& [backend, call] :
       {std::pair("nccl", "cuStreamBeginCapture_v2"), std::pair("nccl", "cuGraphLaunch #5"),
        std::pair("raw:nccl", "cuGraphInstantiateWithFlags"),
        std::pair("raw:nccl", "cuGraphLaunch #5")}) {
    const std::string script = std::string("'FAKE_GPU=all: ") + call + " = 2'";
    const Ended ended = run_with(script, line + backend + " -G 4");
    EXPECT_EQ(ended.code, 1) << call << ended.out;
    EXPECT_NE(ended.out.find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << ended.out;
  }
  EXPECT_EQ(run_with("'FAKE_GPU=all: cuGraphLaunch = 2'", line + "nccl,raw:nccl").code, 0);
}

// NCCL says that all went well, and did nothing.
TEST(Gpu, WrongDataIsFound) {
  for (const char* backend : {"nccl", "raw:nccl"}) {
    const Ended ended = run_with("'FAKE_GPU=all: ncclAllReduce = 0'",
                                 std::string("run") + kTiny + "-n 2 -s 64 -B " + backend);
    EXPECT_EQ(ended.code, 3) << ended.out;
    const Ended in_graph = run_with("'FAKE_GPU=all: cuGraphLaunch = 0'",
                                    std::string("run") + kTiny + "-n 2 -s 64 -G 4 -B " + backend);
    EXPECT_EQ(in_graph.code, 3) << "a replay that did nothing: " << in_graph.out;
  }
}

TEST(Gpu, ABackendThatFailsIsNamedAndTheOtherIsMeasured) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended =
      run_with("'FAKE_GPU=rank 1: ncclAllReduce #9 = 3'",
               std::string("run") + kTiny + "-n 2 -s 64 -B nccl,raw:nccl --json " + json);
  EXPECT_EQ(ended.code, 1) << ended.out;
  EXPECT_NE(ended.out.find("W004 nccl failed in all_reduce: "), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("the script says so"), std::string::npos) << ended.out;
  int cells = 0;
  for (const Json& line : checked_lines_of(json))
    if (line["t"] == "cell" && line["backend"] == "raw:nccl") ++cells;
  EXPECT_EQ(cells, 1) << ended.out;
}

TEST(Gpu, ColumnsMayHaveMemoryOfTheirOwnInWindows) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const auto memory_of = [&](const std::string& windows) {
    const Ended ended = run_with("C10D_NCCL_WINDOWS=" + windows,
                                 std::string("compare") + kTiny +
                                     "-n 2 -B nccl,raw:nccl all_reduce all_gather -s 8,64K "
                                     "--memory heap --place both --json " +
                                     json);
    EXPECT_EQ(ended.code, 0) << ended.out;
    int cells = 0;
    std::map<std::string, std::string> memory;
    for (const Json& line : checked_lines_of(json)) {
      if (line["t"] == "env")
        for (const char* column : {"nccl", "raw:nccl"})
          memory[column] = line["libs"][column]["about"].get<std::string>();
      if (line["t"] == "cell") {
        EXPECT_EQ(line["wrong"], 0) << line.dump();
        ++cells;
      }
    }
    EXPECT_EQ(cells, 2 * 2 * 2 * 2);
    return memory;
  };
  auto memory = memory_of("on");
  EXPECT_NE(memory["nccl"].find("; allocate(): symmetric windows"), std::string::npos)
      << memory["nccl"];
  EXPECT_TRUE(memory["raw:nccl"].ends_with("; symmetric windows")) << memory["raw:nccl"];
  memory = memory_of("off");
  for (const char* column : {"nccl", "raw:nccl"})
    EXPECT_EQ(memory[column].find("windows"), std::string::npos) << memory[column];
}

TEST(Gpu, TwoBuildsTakeTurns) {
  const Ended ended =
      run(std::string("compare") + kTiny + "--against self -n 2 --launches 2 all_reduce -s 64");
  EXPECT_EQ(ended.code, 0) << ended.out;
  for (const char* word : {"nccl@A (base)", "nccl@B", "GPU copy", "cpu us", "warn   W022 "})
    EXPECT_NE(ended.out.find(word), std::string::npos) << word << " in " << ended.out;
}

// As NCCL's test mode for several ranks on a GPU has them.
TEST(Gpu, RanksThatShareAGpuHaveNoBusbw) {
  const TemporaryDirectory folder;
  const std::string json = folder / "r.jsonl";
  const Ended ended =
      run_line("env 'FAKE_GPU=devices=1' " C10D_RUN
               " -n 2 sh -c 'NCCL_HOSTID=host$C10D_RANK exec " C10D_BENCH " run" +
               std::string(kTiny) + "-B nccl,raw:nccl broadcast -s 64 --json " + json + "' 2>&1");
  ASSERT_EQ(ended.code, 0) << ended.out;
  int cells = 0;
  for (const Json& line : checked_lines_of(json)) {
    if (line["t"] != "cell") continue;
    ++cells;
    EXPECT_EQ(line["placement"], "1gpu-colocated");
    EXPECT_TRUE(line["gbps"]["bus"].is_null()) << line.dump();
    EXPECT_FALSE(line["gbps"]["alg"].is_null()) << line.dump();
  }
  EXPECT_EQ(cells, 2);
  EXPECT_NE(ended.out.find("no byte crosses a link"), std::string::npos) << ended.out;
}

TEST(Gpu, WhatIsMissingIsSaidBeforeRanksStart) {
  for (const auto& [environment, words] :
       {std::pair("C10D_CUDA_LIBRARY=/none/libcuda.so.1", "/none/libcuda.so.1"),
        std::pair("'FAKE_GPU=devices=0'", "has no GPU"),
        std::pair("C10D_NCCL_LIBRARY=/none/libnccl.so.2", "/none/libnccl.so.2")}) {
    const Ended ended = run_with(environment, "run --device cuda -n 2 all_reduce -s 8");
    EXPECT_EQ(ended.code, 2) << environment << ended.out;
    EXPECT_TRUE(ended.out.starts_with("c10d-bench: --device cuda: ")) << ended.out;
    EXPECT_NE(ended.out.find(words), std::string::npos) << ended.out;
  }
}

TEST(Gpu, WhatDoesNotFitTheDeviceIsRefused) {
  for (const auto& [line, words] :
       {std::pair("--device cuda -B nccl,native",
                  "-B native: --device cuda measures memory of GPUs"),
        std::pair("--device cuda -B raw:mpi", "take nccl or raw:nccl"),
        std::pair("--device cuda -B memcpy", "take nccl or raw:nccl"),
        std::pair("-B nccl", "add --device cuda"), std::pair("-B raw:nccl", "add --device cuda"),
        std::pair("-B cuda:nccl", "one backend for each column"),
        std::pair("--device cuda --cache cold", "take rotate"),
        std::pair("--device cuda --algo pull", "--algo: not with --device cuda"),
        std::pair("--device cuda --concurrent 2", "--concurrent: not with --device cuda"),
        std::pair("--device cuda -s 4T", "lower --max"),
        std::pair("-G 4", "in no CUDA graph; add --device cuda"),
        std::pair("--device cuda -G 0", "0 not in range"),
        std::pair("--device cuda -G 1001", "1001 not in range"),
        std::pair("--device cuda -G many", "many not in range"),
        std::pair("--device cuda --cudagraph 4", "-G N is the number of ops")}) {
    const Ended ended = run(std::string("run -n 2 ") + line);
    EXPECT_EQ(ended.code, 2) << line << ended.out;
    EXPECT_TRUE(ended.out.starts_with("c10d-bench: ")) << ended.out;
    EXPECT_NE(ended.out.find(words), std::string::npos) << ended.out;
  }
}

// tests/bench/fake_torch says what its all_reduce takes.
TEST(Gpu, PyTorchIsComparedUnderTheSameSizes) {
  const Ended ended = run_with(kFakeTorch + " FAKE_GPU=devices=2",
                               "doctor --cross-check --device cuda --launches 1 --time 0.01s");
  EXPECT_EQ(ended.code, 0) << ended.out;
  EXPECT_NE(ended.out.find("2 ranks on GPUs, 1 launch;"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("beside nccl: PyTorch 0.1, NCCL 2.99.1"), std::string::npos);
  std::map<std::string, double> us;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string column, loop, size, unit;
    double bench = 0, torch = 0;
    if (words >> column >> loop >> size >> unit >> bench >> torch && loop == "torch:nccl") {
      EXPECT_EQ(column, "nccl");
      EXPECT_GT(bench, 0);
      us[size + unit] = torch;
    }
  }
  EXPECT_EQ(us, (std::map<std::string, double>{
                    {"8B", 1000000}, {"64KiB", 1000064}, {"1MiB", 1001024}, {"16MiB", 1016384}}))
      << ended.out;
}

TEST(Gpu, WithoutPyTorchARowSaysWhy) {
  const Ended ended = run_with(kFakeTorch + " FAKE_TORCH=absent FAKE_GPU=devices=1",
                               "doctor --cross-check --device cuda --launches 1 --time 0.01s");
  EXPECT_EQ(ended.code, 77) << ended.out;
  EXPECT_NE(ended.out.find("torch:nccl  skipped: exit code 3: torch_loop.py: no PyTorch"),
            std::string::npos)
      << ended.out;
  const Ended no_gpu =
      run_line("env " + kFakeTorch + " FAKE_TORCH=no-gpu python3 " +
               C10D_SOURCE_DIR "/bench/peers/torch_loop.py 0.01 8 --device cuda 2>&1");
  EXPECT_EQ(no_gpu.code, 3) << no_gpu.out;
  EXPECT_NE(no_gpu.out.find("PyTorch 0.1 finds no GPU"), std::string::npos) << no_gpu.out;
  const Ended nothing = run_with(kFakeTorch + " FAKE_GPU=devices=0",
                                 "doctor --cross-check --device cuda --launches 1");
  EXPECT_EQ(nothing.code, 2) << nothing.out;
  EXPECT_NE(nothing.out.find("this process has no GPU"), std::string::npos) << nothing.out;
}

}}  // namespace c10d::bench
