// SPDX-License-Identifier: BSD-3-Clause
#include "bench/analyse/summary.h"

#include <gtest/gtest.h>

#include <sstream>

#include "bench/analyse/warnings.h"
#include "bench/model/bandwidth.h"
#include "bench/report/banner.h"
#include "bench/report/csv.h"
#include "bench/report/table.h"
#include "bench/text/format.h"
#include "tests/bench/synthetic.h"

namespace c10d::bench { namespace {

TEST(Summary, RecoversAFactorAndItsVerdict) {
  const Summary summary = summarise(
      synthetic_results({{"native", 1}, {"gloo", 3}, {"mpi", 1}, {"fast", 0.5}}), true, 0.02);
  ASSERT_EQ(summary.compares.size(), 9U);
  for (const CompareRecord& record : summary.compares) {
    const double truth = record.other == "gloo" ? 3 : record.other == "fast" ? 0.5 : 1;
    EXPECT_NEAR(record.ratio.value, truth, 1e-9) << "paired inside each block, the wobble cancels";
    EXPECT_EQ(record.verdict, record.other == "gloo"   ? Verdict::slower
                              : record.other == "fast" ? Verdict::faster
                                                       : Verdict::same);
  }
}

TEST(Summary, CeilIsMemcpyOverTime) {
  const Summary summary = summarise(synthetic_results({{"native", 1}}), true, 0.02);
  ASSERT_EQ(summary.tables.size(), 1U);
  const std::vector<SizeRow>& rows = summary.tables.front().rows;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_FALSE(rows[0].cells[0].ceil) << "blank below 4 KiB";
  EXPECT_NEAR(*rows[2].cells[0].ceil, 0.5, 0.01);
}

TEST(Summary, PairsOfAnotherRoundTripAreLeftOut) {
  Results results = synthetic_results({{"native", 1}, {"gloo", 2}});
  for (CellRecord& cell : results.cells) {
    cell.rtt = RoundTrip{0.1, 0.1, "near"};
    if (cell.block == 0 && cell.backend == "gloo") {
      cell.rtt->bucket = "far";
      cell.us.p50 *= 100;
    }
  }
  for (const CompareRecord& record : summarise(results, true, 0.02).compares) {
    EXPECT_NEAR(record.ratio.value, 2, 1e-9);
    EXPECT_NEAR(record.ratio.ci95->high, 2, 1e-9);
  }
}

TEST(Summary, SkipsHoldTheirPlaceAndTheirReason) {
  Results results = synthetic_results({{"native", 1}, {"mpi", 1}});
  std::erase_if(results.cells, [](const CellRecord& cell) { return cell.backend == "mpi"; });
  for (const std::uint64_t bytes :
       {std::uint64_t{1024}, std::uint64_t{65536}, std::uint64_t{1} << 20})
    results.skips.push_back(
        {{"all_reduce", "f32", "sum", "out", -1, bytes}, "mpi", "unavailable", "no mpirun"});
  const Summary summary = summarise(results, true, 0.02);
  EXPECT_EQ(summary.skipped, 3U);
  EXPECT_EQ(skip_notes(summary), std::vector<std::string>{"mpi: no mpirun (3 cells)"});
  EXPECT_NE(text_tables(summary, {}).find("skip"), std::string::npos);
}

TEST(Summary, TheBaseAgainstItselfIsAControlAndNoColumn) {
  Results results = synthetic_results({{"native", 1}});
  const std::vector<CellRecord> cells = results.cells;
  for (CellRecord cell : cells) {
    cell.backend += kControlSuffix;
    cell.us.p50 *= 1.5;
    results.cells.push_back(cell);
  }
  const Summary summary = summarise(results, true, 0.02);
  EXPECT_EQ(summary.backends, std::vector<std::string>{"native"});
  ASSERT_EQ(summary.controls.size(), 1U);
  EXPECT_NEAR(summary.controls[0].ratio.value, 1.5, 1e-9);
  EXPECT_EQ(summary.controls[0].trust, Trust::off);
}

// Launches alone against launches in company: a backend that is half as fast among the others.
TEST(Summary, InterferenceIsARatioOfItsOwn) {
  Results results = synthetic_results({{"native", 1}, {"gloo", 2}});
  const std::vector<CellRecord> cells = results.cells;
  for (CellRecord cell : cells) {
    cell.us.p50 /= cell.backend == "gloo" ? 2 : 1;
    cell.backend += kSoloSuffix;
    results.cells.push_back(cell);
  }
  const Summary summary = summarise(results, true, 0.02);
  EXPECT_EQ(summary.backends, (std::vector<std::string>{"native", "gloo"}));
  ASSERT_EQ(summary.controls.size(), 2U);
  EXPECT_EQ(summary.controls[0].backend, "native");
  EXPECT_EQ(summary.controls[0].trust, Trust::ok);
  EXPECT_EQ(summary.controls[1].kind, "solo");
  EXPECT_NEAR(summary.controls[1].ratio.value, 2, 1e-9);
  const std::vector<WarnRecord> found = findings(results, summary, 0.05);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "W010");
}

TEST(Summary, OfTwoBuildsEachBackendIsComparedWithItselfInTheFirst) {
  Results results =
      synthetic_results({{"native@A", 1}, {"native@B", 2}, {"gloo@A", 10}, {"gloo@B", 5}});
  for (const char* side : {"A", "B"})
    results.run["sets"].push_back({{"side", side}, {"backends", {"native", "gloo"}}});
  const Summary summary = summarise(results, true, 0.02);
  ASSERT_EQ(summary.compares.size(), 6U);
  for (const CompareRecord& record : summary.compares) {
    const bool native = record.other == "native@B";
    EXPECT_EQ(record.base, native ? "native@A" : "gloo@A");
    EXPECT_NEAR(record.ratio.value, native ? 2 : 0.5, 1e-6);
  }
  EXPECT_TRUE(summary.is_base(2));
  EXPECT_EQ(summary.base_name(), "the same backend of build A");
}

// Blocks of different processes have nothing in common but their launch.
TEST(Summary, OfProcessesInTurnsTheMediansOfEachLaunchAreCompared) {
  Results results = synthetic_results({{"mpi@openmpi", 1}, {"mpi@mpich", 3}});
  for (const char* backend : {"mpi@openmpi", "mpi@mpich"})
    results.run["sets"].push_back({{"side", ""}, {"backends", Json::array({backend})}});
  for (CellRecord& cell : results.cells)  // one is slow first, the other one last
    cell.us.p50 *= cell.backend == "mpi@mpich" ? 4 - cell.block : 1 + cell.block;
  const Summary summary = summarise(results, true, 0.02);
  ASSERT_EQ(summary.compares.size(), 3U);
  for (const CompareRecord& record : summary.compares)
    EXPECT_NEAR(record.ratio.value, 3, 0.02) << record.key.bytes;
  EXPECT_EQ(summary.base_name(), "mpi@openmpi");
}

TEST(Summary, FitsAndCrossingsAreFound) {
  // native is 100 B/us without a start-up, gloo 10 us + 400 B/us: equal at 4000/3 bytes.
  Results results;
  for (const std::uint64_t bytes :
       {std::uint64_t{256}, std::uint64_t{1024}, std::uint64_t{4096}, std::uint64_t{65536}})
    for (int launch = 0; launch < 2; ++launch)
      for (int block = 0; block < 3; ++block) {
        const double size = static_cast<double>(bytes);
        const double wobble = 1 + 0.001 * block;
        results.cells.push_back(
            synthetic_cell("native", bytes, launch, block, wobble * size / 100));
        results.cells.push_back(
            synthetic_cell("gloo", bytes, launch, block, wobble * (10 + size / 400)));
      }
  const Summary summary = summarise(results, true, 0.02);
  ASSERT_EQ(summary.tables.size(), 1U);
  const std::vector<FitRecord>& fits = summary.tables[0].fits;
  ASSERT_EQ(fits.size(), 2U);
  EXPECT_NEAR(fits[0].line->alpha, 0, 0.02);
  EXPECT_TRUE(fits[0].other.empty()) << "the base";
  EXPECT_NEAR(fits[1].line->alpha, 10, 0.1);
  EXPECT_NEAR(1 / fits[1].line->beta, 400, 4);
  EXPECT_EQ(fits[1].to, 65536U);
  ASSERT_TRUE(fits[1].overtakes_at);
  EXPECT_GT(*fits[1].overtakes_at, 1024U);
  EXPECT_LT(*fits[1].overtakes_at, 4096U);
  EXPECT_EQ(text_tables(summary, {}).find("cross"), std::string::npos);
  TableStyle style;
  style.fits = true;
  const std::string text = text_tables(summary, style);
  EXPECT_NE(text.find("cross  native<->gloo: about 1."), std::string::npos) << text;
}

TEST(Summary, TwoModesAreReportedWithTheWordsToSeeThemAgain) {
  Results results = synthetic_results({{"native", 1}, {"gloo", 2}});
  for (CellRecord& cell : results.cells)
    if (cell.backend == "gloo" && cell.key.bytes == 65536 && cell.block % 2 == 0) cell.us.p50 *= 5;
  const std::vector<WarnRecord> found = findings(results, summarise(results, true, 0.02), 0.05);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "W021");
  EXPECT_EQ(found[0].only, "all_reduce:gloo:64K");
  results.warnings = found;
  const Summary summary = summarise(results, true, 0.02);
  for (const auto& [json, command] :
       {std::pair("r.jsonl", "c10d-bench compare --replay r.jsonl --only all_reduce:gloo:64K"),
        std::pair("", "c10d-bench compare 'a b' --only all_reduce:gloo:64K")}) {
    const std::string text = footer_text(results, summary, Detail::brief, 0, json, 80);
    EXPECT_NE(text.find(command), std::string::npos) << text;
  }
}

TEST(Banner, WordsForMoreHostsStartTheRanksThere) {
  Results results = synthetic_results({{"native", 1}, {"gloo", 2}});
  results.run["launcher"] = "c10d";
  results.run["argv"] = {"/a/c10d-bench", "run", "--only", "gloo:8", "--only=gloo:16", "-v"};
  results.environments.push_back(
      {{"hosts", {{{"name", "node1"}, {"ranks", {0, 1}}}, {{"name", "node2"}, {"ranks", {2}}}}}});
  const std::string start = "c10d-run -H node1:2,node2:1 c10d-bench run ";
  EXPECT_EQ(command_text(results), start + "--only gloo:8 --only=gloo:16 -v");
  EXPECT_EQ(command_text(results, "gloo:4K"), start + "-v --only gloo:4K");
  results.warnings.push_back({"W021", "two modes", "gloo:4K"});
  const Summary summary = summarise(results, true, 0.02);
  EXPECT_NE(footer_text(results, summary, Detail::brief, 0, "r.jsonl", 80)
                .find("see them again: " + start + "-v --only gloo:4K"),
            std::string::npos)
      << "the file is on one host";
  results.run["launch_line"] = "c10d-run -H 10.0.0.1:2,10.0.0.2 --agent 'rsh %h %c'";
  EXPECT_EQ(command_text(results, "gloo:4K"),
            "c10d-run -H 10.0.0.1:2,10.0.0.2 --agent 'rsh %h %c' c10d-bench run -v --only gloo:4K");
  results.run["launcher"] = "openmpi";
  EXPECT_TRUE(command_text(results).starts_with("under openmpi on node1:2 node2:1: c10d-bench "));
}

TEST(Banner, IsTheMachineUnlessMoreIsAskedFor) {
  Results results = synthetic_results({{"native", 1}, {"gloo", 2}});
  results.environments.push_back(Json{{"cores", 2}, {"cpu", "Abacus"}, {"kernel", "6.1"}});
  const Summary right = summarise(results, true, 0.02);
  EXPECT_EQ(header_text(results, right, Detail::brief, 80),
            "host   2 CPUs, Abacus, 1 NUMA node, Linux 6.1\n");
  EXPECT_EQ(footer_text(results, right, Detail::brief, 0, "", 80), "") << "nothing to warn of";
  const std::string full = header_text(results, right, Detail::full, 80) +
                           footer_text(results, right, Detail::full, 0, "", 80);
  for (const char* label : {"units ", "check ", "ratio ", "again "})
    EXPECT_NE(full.find(label), std::string::npos) << full;
  results.cells.front().wrong = 3;
  const Summary wrong = summarise(results, true, 0.02);
  EXPECT_NE(header_text(results, wrong, Detail::brief, 80).find("WRONG DATA: 3 elements"),
            std::string::npos);
}

TEST(Table, ShowsBusbwWhereABackendHasIt) {
  Results results = synthetic_results({{"gloo", 1}});
  TableStyle style;
  style.compare = false;
  EXPECT_EQ(text_tables(summarise(results, false, 0.02), style).find("busbw"), std::string::npos);
  for (CellRecord& cell : results.cells) cell.bus = cell.alg;
  EXPECT_NE(text_tables(summarise(results, false, 0.02), style).find("busbw"), std::string::npos);
}

TEST(Table, MarksTheTimesThatHaveTwoModes) {
  Results results = synthetic_results({{"native", 1}, {"gloo", 2}});
  TableStyle style;
  const std::string legend = "* two modes: W021 names them\n";
  EXPECT_EQ(text_tables(summarise(results, true, 0.02), style).find('*'), std::string::npos);
  for (CellRecord& cell : results.cells)
    if (cell.backend == "gloo" && cell.key.bytes == 65536 && cell.block % 2 == 0) cell.us.p50 *= 5;
  const Summary summary = summarise(results, true, 0.02);
  for (const std::size_t width : {180, 80}) {
    style.width = width;
    const std::string text = text_tables(summary, style);
    EXPECT_NE(text.find(microseconds_text(summary.tables[0].rows[1].cells[1].p50.value) + "* "),
              std::string::npos)
        << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '*'), 2) << text;
    EXPECT_NE(text.find(legend), std::string::npos) << text;
  }
  EXPECT_NE(markdown_tables(summary, style).find("\n\\" + legend), std::string::npos);
  style.columns = {"p90"};
  EXPECT_EQ(text_tables(summary, style).find('*'), std::string::npos) << "no mark, no legend";
}

TEST(Summary, CachesAndConcurrencyAreTablesOfTheirOwn) {
  Results results = synthetic_results({{"native", 1}});
  const std::vector<CellRecord> cells = results.cells;
  for (CellRecord cell : cells) {
    cell.key.cache = "rotate";
    cell.key.concurrent = 2;
    results.cells.push_back(cell);
  }
  results.ceilings.push_back({"memcpy", "", 65536, 0, 1.0, 65.0, false});
  const Summary summary = summarise(results, true, 0.02);
  ASSERT_EQ(summary.tables.size(), 2U);
  EXPECT_EQ(summary.tables[1].title(), "all_reduce f32 sum, 2 at once, rotating buffers");
  EXPECT_NEAR(*summary.tables[0].rows[1].ceil_us, 6.5536, 1e-9);
  EXPECT_EQ(summary.tables[1].rows[1].ceil_us, 2 * 65.0) << "its own ceiling, two at once";
}

// Of 4 ranks on 2 hosts each host must exchange 64 KiB, at 2 GB/s, which two connections carry; a
// copy has nothing to exchange.
TEST(Summary, BetweenHostsTheLinkIsTheCeilingOfConnections) {
  Results results = synthetic_results({{"gloo", 1}, {"memcpy", 1}});
  for (CellRecord& cell : results.cells) cell.placement = kSeveralHosts;
  results.environments = {Json{{"hosts", {{{"ranks", {0, 1}}}, {{"ranks", {2, 3}}}}}}};
  for (const double rate : {1.5, 2.0, 1.8}) {
    results.ceilings.push_back({kLink, kBothWays, 0, 0, rate, 0});
    results.ceilings.push_back({kLink, "one way", 0, 0, 2 * rate, 0});
  }
  const Summary summary = summarise(results, false, 0.02);
  const SizeRow& row = summary.tables.at(0).rows.at(1);
  EXPECT_STREQ(summary.copy_name(), "link");
  EXPECT_NEAR(*row.ceil_us, 65536 * 1e-3 / 2, 1e-9);
  EXPECT_NEAR(*row.cells.at(0).ceil, *row.ceil_us / row.cells.at(0).p50.value, 1e-9);
  EXPECT_FALSE(row.cells.at(1).ceil);
}

TEST(Table, TheRateOfALinkIsNoTimeOfASmallMessage) {
  Results results = synthetic_results({{"gloo", 1}});
  for (CellRecord& cell : results.cells) cell.placement = kSeveralHosts;
  results.environments = {Json{{"hosts", {{{"ranks", {0}}}, {{"ranks", {1}}}}}}};
  results.ceilings = {{kLink, kBothWays, 0, 0, 2.0, 0}};
  const std::string text = text_tables(summarise(results, false, 0.02), {});
  const auto link_us = [&](const std::string& size) {
    std::string us;
    std::istringstream(text.substr(text.find(size) + size.size())) >> us;
    return us;
  };
  EXPECT_EQ(link_us(" 1 KiB"), "-") << text;
  EXPECT_EQ(link_us(" 64 KiB"), "32.8") << text;
}

TEST(Summary, WrongElementsAreCounted) {
  Results results = synthetic_results({{"native", 1}});
  results.cells[5].wrong = 7;
  EXPECT_EQ(summarise(results, false, 0.02).wrong, 7U);
  for (const char* control : {kControlSuffix, kSoloSuffix}) {
    results.cells.push_back(results.cells[5]);
    results.cells.back().backend += control;
  }
  EXPECT_EQ(summarise(results, false, 0.02).wrong, 3 * 7U) << "in no table, but wrong all the same";
}

TEST(Table, TurnsToOneLinePerBackendWhereItIsTooWide) {
  const Summary summary = summarise(synthetic_results({{"native", 1}, {"gloo", 3}}), true, 0.02);
  TableStyle style;
  const std::string wide = text_tables(summary, style);
  EXPECT_NE(wide.find("native (base)"), std::string::npos);
  EXPECT_NE(wide.find("3.00 [3.00, 3.00]"), std::string::npos) << wide;
  style.width = 80;
  const std::string tall = text_tables(summary, style);
  EXPECT_EQ(tall.find("native (base)"), std::string::npos);
  EXPECT_GT(std::count(tall.begin(), tall.end(), '\n'), std::count(wide.begin(), wide.end(), '\n'));
  EXPECT_EQ(tall.find('\x1b'), std::string::npos) << "no colours unless asked for";
}

TEST(Table, LosesColumnsWhereItIsStillTooWide) {
  const Results both = synthetic_results({{"native", 1}, {"gloo", 3}});
  const Results one = synthetic_results({{"native", 1}});
  for (const std::size_t width : {64, 80, 100}) {
    TableStyle style;
    style.width = width;
    for (const bool compare : {true, false}) {
      style.compare = compare;
      const std::string text = text_tables(summarise(compare ? both : one, compare, 0.02), style);
      std::istringstream lines(text.substr(text.find('\n', 1) + 1));  // behind the title
      for (std::string line; std::getline(lines, line);)
        EXPECT_LE(display_width(line), width) << text;
      for (const char* kept : {"p50 us", "#wrong"})
        EXPECT_NE(text.find(kept), std::string::npos) << text;
      EXPECT_EQ(text.find("max us") == std::string::npos, compare || width < 80) << text;
    }
  }
  TableStyle asked;
  asked.width = 20;
  asked.columns = {"p50", "max"};
  EXPECT_NE(text_tables(summarise(both, true, 0.02), asked).find("max us"), std::string::npos);
}

TEST(Table, ColumnsAreAsAskedFor) {
  TableStyle style;
  style.columns = {"p90", "wrong"};
  const std::string text =
      markdown_tables(summarise(synthetic_results({{"native", 1}}), true, 0.02), style);
  EXPECT_NE(text.find("| native p90 us | native #wrong |"), std::string::npos) << text;
}

TEST(Csv, OneRowPerBlockAndNoControl) {
  Results results = synthetic_results({{"native", 1}});
  results.cells.front().backend += kControlSuffix;
  const std::string text = csv_text(results.cells);
  EXPECT_EQ(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')),
            results.cells.size());
  const std::string header = text.substr(0, text.find('\n'));
  const std::string row =
      text.substr(header.size() + 1, text.find('\n', header.size() + 1) - header.size() - 1);
  EXPECT_EQ(std::count(header.begin(), header.end(), ','), std::count(row.begin(), row.end(), ','));
  EXPECT_NE(row.find(",,,,0,"), std::string::npos) << "a round trip that was not measured is blank";
}

TEST(Csv, WhatHoldsACommaIsQuoted) {
  CellRecord cell = synthetic_cell("mpi", 8, 0, 0, 1);
  cell.algo = "tuned, \"ring\"";
  const std::string text = csv_text({cell});
  EXPECT_NE(text.find(",\"tuned, \"\"ring\"\"\",hot,1,1,cpu,one_host,,0,\n"), std::string::npos)
      << text;
}

}}  // namespace c10d::bench
