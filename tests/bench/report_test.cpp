// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "bench/report/banner.h"
#include "bench/report/figures.h"
#include "bench/report/html.h"
#include "bench/text/format.h"
#include "bench/text/svg.h"
#include "tests/bench/schema.h"
#include "tests/bench/synthetic.h"

namespace c10d::bench { namespace {

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

// Every element that is opened is closed, in order.
void expect_balanced(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag.starts_with("!") || tag.starts_with("meta") || tag.ends_with("/")) continue;
    const std::string name =
        tag.substr(tag[0] == '/' ? 1 : 0, tag.find(' ') - (tag[0] == '/' ? 1 : 0));
    if (tag[0] != '/') {
      open.push_back(name);
      continue;
    }
    ASSERT_FALSE(open.empty()) << tag;
    ASSERT_EQ(open.back(), name);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

TEST(Report, IsOneFileThatNeedsNothingElse) {
  Results results = synthetic_results({{"native", 1}, {"gloo", 3}});
  results.warnings.push_back({"W999", "a < b & \"c\""});
  const std::string html = html_report(results, summarise(results, true, 0.02));
  expect_balanced(html);
  for (const char* forbidden : {"<script", "http://", "https://", "<link", "@import", "url("})
    EXPECT_EQ(html.find(forbidden), std::string::npos) << forbidden;
  EXPECT_EQ(count(html, "<svg class=\"chart\""), 2U) << "time and bandwidth of one op";
  EXPECT_NE(html.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_NE(html.find("c10d-bench compare &#39;a b&#39;"), std::string::npos)
      << "the exact command";
  EXPECT_EQ(html.find("nan"), std::string::npos);
  EXPECT_EQ(html.find("inf\""), std::string::npos);
}

TEST(Report, FiguresStandAlone) {
  const Results results = synthetic_results({{"native", 1}, {"gloo", 3}});
  const Summary summary = summarise(results, true, 0.02);
  for (const Figure& figure : charts_of(summary.tables.at(0), summary)) {
    const std::string svg = standalone_svg(figure.chart);
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"")) << svg;
    for (const char* part : {"all_reduce f32 sum", ">native<", ">gloo<", ">memcpy<", "</svg>"})
      EXPECT_NE(svg.find(part), std::string::npos) << part;
    expect_balanced(svg);
  }
}

TEST(Report, MarksTheTimesThatHaveTwoModes) {
  Results results = synthetic_results({{"native", 1}, {"gloo", 2}});
  const std::string legend = std::string(kTwoModesLegend) + "</p>";
  EXPECT_EQ(count(html_report(results, summarise(results, true, 0.02)), legend), 0U);
  for (CellRecord& cell : results.cells)
    if (cell.backend == "gloo" && cell.key.bytes == 65536 && cell.block % 2 == 0) cell.us.p50 *= 5;
  const Summary summary = summarise(results, true, 0.02);
  const std::string html = html_report(results, summary);
  expect_balanced(html);
  EXPECT_EQ(count(html, legend), 1U);
  const double marked = summary.tables[0].rows[1].cells[1].p50.value;
  EXPECT_EQ(count(html, "<td>" + microseconds_text(marked) + "*</td>"), 1U);
}

TEST(Report, OneSizeOrNothingMeasuredIsNoReasonToFail) {
  Results one = synthetic_results({{"native", 1}});
  std::erase_if(one.cells, [](const CellRecord& cell) { return cell.key.bytes != 1024; });
  expect_balanced(html_report(one, summarise(one, true, 0.02)));
  const Results none;
  expect_balanced(html_report(none, summarise(none, true, 0.02)));
}

// The files that the documents quote: each says of which commit it is and how to measure it again.
TEST(Report, ReadsTheResultsOfTheRepository) {
  const Schema schema(C10D_SOURCE_DIR "/bench/schema/c10d-bench-1.schema.json");
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(C10D_SOURCE_DIR "/bench/results")) {
    if (entry.path().extension() != ".jsonl") continue;
    SCOPED_TRACE(entry.path());
    ++files;
    EXPECT_TRUE(std::filesystem::exists(entry.path().parent_path() / "README.md"));
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);)
      EXPECT_EQ(schema.complaint(Json::parse(line)), "") << line;
    Results results;
    read_results(entry.path(), results);
    const std::string commit = commit_of(results.run);
    EXPECT_FALSE(commit.empty());
    EXPECT_EQ(commit.find("dirty"), commit.npos) << commit << " is not what was measured";
    std::string command = command_text(results);
    if (command.starts_with("under openmpi on first:")) command.erase(0, command.find(": ") + 2);
    EXPECT_TRUE(command.starts_with("c10d-bench ")) << command;
    EXPECT_TRUE(results.complete);
    const Summary summary = summarise(results, true, 0.02);
    EXPECT_EQ(summary.wrong, 0U);
    const std::string html = html_report(results, summary);
    expect_balanced(html);
    EXPECT_NE(html.find(commit), html.npos);
  }
  EXPECT_GT(files, 0U);
}

}}  // namespace c10d::bench
