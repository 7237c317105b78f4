// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/record.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <limits>

#include "bench/measure/machine.h"
#include "c10d/error.h"
#include "tests/bench/schema.h"
#include "tests/bench/synthetic.h"
#include "tests/temporary_directory.h"

namespace c10d::bench { namespace {

CellRecord full_cell() {
  CellRecord cell = synthetic_cell("gloo", 4096, 1, 2, 100);
  cell.rtt = RoundTrip{0.1, 0.12, "near"};
  cell.us.p99 = 119.5;
  cell.mem = 1.5;
  cell.wrong = 3;
  cell.skew_in = 0.5;
  cell.skew_out = 0.25;
  cell.order = 2;
  cell.window = 16;
  cell.burst = 64;
  cell.graph_ops = 16;
  cell.switches = {7, 8};
  cell.algo = "ring";
  cell.key.cache = "rotate";
  cell.key.concurrent = 4;
  return cell;
}

TEST(Record, ACellSurvivesItsLine) {
  const CellRecord cell = full_cell();
  Results results;
  results.add(Json::parse(to_json(cell, true).dump()));
  ASSERT_EQ(results.cells.size(), 1U);
  const CellRecord& read = results.cells.front();
  EXPECT_EQ(read.key, cell.key);
  EXPECT_EQ(read.backend, cell.backend);
  EXPECT_EQ(read.algo, cell.algo);
  EXPECT_EQ(read.iters, cell.iters);
  EXPECT_DOUBLE_EQ(read.us.p50, cell.us.p50);
  EXPECT_EQ(read.us.p99, cell.us.p99);
  EXPECT_EQ(read.mem, cell.mem);
  EXPECT_EQ(read.bus, std::nullopt);
  EXPECT_EQ(read.rtt->bucket, "near");
  EXPECT_EQ(read.wrong, 3U);
  EXPECT_EQ(read.samples, cell.samples);
  EXPECT_EQ(read.switches, cell.switches);
  EXPECT_EQ(to_json(read, true), to_json(cell, true));
}

TEST(Record, EveryKindFitsTheSchema) {
  const Schema schema(C10D_SOURCE_DIR "/bench/schema/c10d-bench-1.schema.json");
  CompareRecord compare;
  compare.key = full_cell().key;
  compare.base = "native";
  compare.other = "gloo";
  compare.ratio.value = 2;
  FitRecord fit;
  fit.key = full_cell().key;
  fit.backend = "gloo";
  fit.line = LineFit{1.5, 0.001, 0.1};
  fit.other = "native";
  FitRecord empty;
  empty.key = full_cell().key;
  empty.backend = "native";
  for (const Json& line :
       {to_json(full_cell(), false),
        to_json(SkipRecord{full_cell().key, "mpi", "unsupported", "why"}),
        to_json(CeilRecord{"memcpy", "L2", 4096, 0, 10.0, 0.4}), to_json(compare),
        to_json(ControlRecord{"aa", "native", compare.ratio, Trust::wide}),
        to_json(WarnRecord{"W001", "text", "native:8"}), to_json(fit), to_json(empty),
        sample_json(full_cell()), environment_json()})
    EXPECT_EQ(schema.complaint(line), "") << line.dump();
}

TEST(Record, TheSchemaRefusesWhatIsNot) {
  const Schema schema(C10D_SOURCE_DIR "/bench/schema/c10d-bench-1.schema.json");
  Json line = to_json(full_cell(), false);
  line.erase("us");
  EXPECT_NE(schema.complaint(line), "");
  line = to_json(full_cell(), false);
  line["iters"] = "three";
  EXPECT_NE(schema.complaint(line), "");
  line = to_json(full_cell(), false);
  line["t"] = "no_such_kind";
  EXPECT_NE(schema.complaint(line), "");
}

TEST(Record, AFitSaysItsPaceAndItsHalf) {
  FitRecord fit;
  fit.key = full_cell().key;
  fit.line = LineFit{1.5, 0.001, 0.1};
  fit.other = "native";
  fit.overtakes_at = 4096;
  const Json line = to_json(fit);
  EXPECT_EQ(line["alpha_us"], 1.5);
  EXPECT_EQ(line["gbps"], 1.0) << "1000 bytes per us";
  EXPECT_EQ(line["n_half"], 1500);
  EXPECT_EQ(line["crossover"]["bytes"], 4096);
}

TEST(Record, AControlSurvivesItsLine) {
  Results results;
  ControlRecord control{"solo", "mpi", {}, Trust::wide};
  control.ratio = {1.1, Interval{0.8, 1.3}, true};
  results.add(Json::parse(line_text(to_json(control))));
  ASSERT_EQ(results.controls.size(), 1U);
  EXPECT_EQ(results.controls[0].trust, Trust::wide);
  EXPECT_EQ(results.controls[0].kind, "solo");
}

TEST(Record, ALineIsUtf8WhateverAVariableHolds) {
  const std::string line = line_text(to_json(WarnRecord{"W1", "a\xff"}));
  EXPECT_NE(line.find("a\xEF\xBF\xBD"), std::string::npos) << line;
}

TEST(Record, NoNumberIsEverNaN) {
  CellRecord cell = full_cell();
  cell.alg = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(to_json(cell, false)["gbps"]["alg"].is_null());
}

struct File {
  explicit File(const std::string& text) { std::ofstream(path) << text; }
  TemporaryDirectory folder;
  std::string path = folder / "run.jsonl";
};

const std::string kRun = R"({"v":1,"t":"run","id":"a"})";

TEST(Record, ReadersIgnoreWhatTheyDoNotKnowAndACutLastLine) {
  const std::string cell = to_json(full_cell(), false).dump();
  const File file(kRun + "\n" + R"({"v":1,"t":"future","x":1})" + "\n" + cell + "\n" +
                  cell.substr(0, 40));
  Results results;
  read_results(file.path, results);
  EXPECT_EQ(results.cells.size(), 1U);
  EXPECT_FALSE(results.complete);
}

TEST(Record, WhatIsNoRecordIsAnErrorWithFileAndLine) {
  const struct {
    std::string text;
    const char* line;
  } rows[] = {
      {kRun + "\nnonsense\n" + kRun + "\n", ":2: "},
      {"nonsense", ":1: "},
      {"<html>\n</html>\n", ":1: "},
      {R"({"name":"another program's"})", ":1: "},
      {"[1]\n[2]\n", ":1: "},
      {R"({"t":"cell"})", ":1: "},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.text);
    const File file(row.text);
    Results results;
    try {
      read_results(file.path, results);
      ADD_FAILURE() << "was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.what(), file.path + row.line +
                                  "this line is no record of a run: give a file that c10d-bench "
                                  "run or compare wrote by --json");
    }
  }
  Results results;
  EXPECT_THROW(read_results("/", results), InvalidArgument) << "a folder";
}

TEST(Record, LaunchesOfFurtherFilesAreNumberedOn) {
  const std::string cell = to_json(full_cell(), false).dump();
  const File file(kRun + "\n" + cell + "\n" +
                  R"({"v":1,"t":"end","ok":true,"complete":true,"exit":0,"cells":1})" + "\n");
  Results results;
  read_results(file.path, results);
  read_results(file.path, results);
  ASSERT_EQ(results.cells.size(), 2U);
  EXPECT_EQ(results.cells[0].launch, 1);
  EXPECT_EQ(results.cells[1].launch, 3);
  EXPECT_TRUE(results.complete);
}

TEST(Record, ASecondRunIsRefused) {
  const File one(kRun + "\n"), other(R"({"v":1,"t":"run","id":"b"})");
  Results results;
  read_results(one.path, results);
  EXPECT_THROW(read_results(other.path, results), InvalidArgument);
}

TEST(Environment, SecretsAndRanksStayOut) {
  setenv("C10D_TOKEN_FILE", "/secret", 1);
  setenv("NCCL_MY_PASSWORD", "secret", 1);
  setenv("C10D_RANK", "0", 1);
  setenv("GLOO_TEST_CHOICE", "seen", 1);
  const auto variables = relevant_variables();
  EXPECT_EQ(variables.count("C10D_TOKEN_FILE") + variables.count("NCCL_MY_PASSWORD") +
                variables.count("C10D_RANK"),
            0U);
  EXPECT_EQ(variables.at("GLOO_TEST_CHOICE"), "seen");
  for (const char* name : {"C10D_TOKEN_FILE", "NCCL_MY_PASSWORD", "C10D_RANK", "GLOO_TEST_CHOICE"})
    unsetenv(name);
}

}}  // namespace c10d::bench
