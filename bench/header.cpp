// SPDX-License-Identifier: BSD-3-Clause
#include "bench/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/format.h"

namespace c10d::bench {
namespace {

constexpr std::string_view kDot = " · ";

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string round_trip_text(const Results& results) {
  std::map<std::string, std::vector<double>> buckets;
  for (const CellRecord& cell : results.cells)
    if (cell.rtt) buckets[cell.rtt->bucket].push_back(cell.rtt->before);
  std::vector<std::string> parts;
  for (auto& [bucket, values] : buckets)
    parts.push_back(fmt::format("{:.2f} us {} ({} blocks)", median(values), bucket, values.size()));
  return parts.empty() ? "" : "rtt 0-1 " + join(parts, ", ");
}

std::string libraries_text(const Results& results, const Summary& summary) {
  if (results.environments.empty()) return "";
  const Json libs = results.environments.front().value("libs", Json::object());
  std::vector<std::string> parts;
  for (const std::string& name : summary.backends)
    if (const auto lib = libs.find(name); lib != libs.end() && lib->contains("about"))
      parts.push_back(fmt::format("{}: {}", name, (*lib)["about"].get<std::string>()));
  return join(parts, kDot);
}

// memcpy at up to four of the sizes that were run.
std::string ceilings_text(const Results& results) {
  std::map<std::uint64_t, std::vector<double>> speeds;
  for (const CeilRecord& ceil : results.ceilings)
    if (ceil.kind == "memcpy" && ceil.level.empty() && ceil.gbps && ceil.bytes >= 4096)
      speeds[ceil.bytes].push_back(*ceil.gbps);
  std::vector<std::string> parts;
  const std::size_t step = std::max<std::size_t>(1, (speeds.size() + 2) / 4);
  std::size_t i = 0;
  for (auto& [bytes, values] : speeds)
    if (i++ % step == 0 || i == speeds.size())
      parts.push_back(fmt::format("{:.1f} at {}", median(values), bytes_text(bytes)));
  return parts.empty() ? "" : "memcpy, one core, GB/s: " + join(parts, kDot);
}

std::string check_text(const Results& results, const Summary& summary) {
  if (summary.measured == 0) return "nothing was measured";
  if (summary.wrong > 0)
    return fmt::format("WRONG DATA: {} elements differ from the oracle", summary.wrong);
  const bool differ = std::any_of(
      results.warnings.begin(), results.warnings.end(),
      [](const WarnRecord& warn) { return warn.code == "W003" || warn.code == "W005"; });
  std::set<std::pair<CellKey, std::string>> checked;
  for (const CellRecord& cell : results.cells)
    if (!cell.hash.empty()) checked.insert({cell.key, cell.backend});
  if (checked.empty()) return "off: results were not compared with the oracle";
  return fmt::format("all {} cells exact against the oracle{}", checked.size(),
                     differ ? "" : "; result hash equal across ranks, launches and backends");
}

bool needs_quotes(const std::string& word) {
  return word.empty() ||
         word.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=,.:/+%@") !=
             std::string::npos;
}

}  // namespace

std::string command_text(const Json& run) {
  if (!run.is_object() || !run.contains("argv")) return "";
  std::vector<std::string> words = run["argv"].get<std::vector<std::string>>();
  if (!words.empty()) words.front() = "c10d-bench";
  for (std::string& word : words)
    if (needs_quotes(word)) word = "'" + word + "'";
  return join(words, " ");
}

std::string machine_text(const Json& environment) {
  const int cores = environment.value("cores", 0);
  const int numa = environment.value("numa", 1);
  const std::string virt = environment.value("virt", "");
  return fmt::format("{} CPU{}, {}, {} NUMA node{}{}, Linux {}", cores, cores == 1 ? "" : "s",
                     environment.value("cpu", ""), numa, numa == 1 ? "" : "s",
                     virt.empty() || virt == "none" ? "" : ", VM", environment.value("kernel", ""));
}

std::string header_text(const Results& results, const Summary& summary) {
  const Json& run = results.run;
  std::string text = fmt::format(
      "{} · schema 1 · run {} · seed {}     time = slowest rank per iteration · GB/s = 1e9 B/s · S "
      "as nccl-tests\n",
      run.value("tool", "c10d-bench"), run.value("id", "?"), run.value("seed", std::uint64_t{0}));
  const auto line = [&](const char* label, const std::string& value) {
    if (!value.empty()) text += fmt::format("{:<6} {}\n", label, value);
  };
  if (!results.environments.empty()) {
    const std::string rtt = round_trip_text(results);
    line("host", machine_text(results.environments.front()) + (rtt.empty() ? "" : "     " + rtt));
  }
  line("libs", libraries_text(results, summary));
  line("ceil", ceilings_text(results));
  line("check", check_text(results, summary));
  line("busbw", "n/a (shared memory): the ranks of one host share it");
  return text;
}

std::string footer_text(const Results& results, const Summary& summary, int exit_code) {
  std::string text = "\n";
  const auto line = [&](const char* label, const std::string& value) {
    text += fmt::format("{:<6} {}\n", label, value);
  };
  if (!summary.compares.empty())
    line("ratio", fmt::format("time / time of {}: above 1 is slower{}", summary.backends.front(),
                              summary.launches > 1 ? "" : "; intervals within one launch only"));
  for (const ControlRecord& control : summary.controls)
    line("ctl", fmt::format("A/A {} {}{}{}", control.backend, ratio_text(control.ratio.value),
                            control.ratio.ci95
                                ? fmt::format(" [{}, {}]", ratio_text(control.ratio.ci95->low),
                                              ratio_text(control.ratio.ci95->high))
                                : "",
                            control.ok ? " ok" : " noisy"));
  for (const std::string& note : skip_notes(summary)) line("skip", note);
  std::set<std::string> said;
  for (const WarnRecord& warn : results.warnings)
    if (said.insert(warn.text).second) line("warn", fmt::format("{} {}", warn.code, warn.text));
  if (!results.complete)
    line("end", fmt::format("incomplete: the run ended early with exit code {}", exit_code));
  line("again", command_text(results.run));
  return text;
}

std::string to_ascii(std::string text) {
  std::size_t at = 0;
  while ((at = text.find("·", at)) != std::string::npos)
    text.replace(at, std::string_view("·").size(), "|");
  std::replace_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0x80U) != 0; },
      '?');
  return text;
}

}  // namespace c10d::bench
