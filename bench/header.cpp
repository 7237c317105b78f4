// SPDX-License-Identifier: BSD-3-Clause
#include "bench/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/bandwidth.h"
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
    parts.push_back(fmt::format("{:.2f} us {} ({} block{})", median(values), bucket, values.size(),
                                values.size() == 1 ? "" : "s"));
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

// "0: 0-3 · 1: 4-7", or the CPUs that all share.
std::string placement_text(const Results& results) {
  const Json cpus = results.environments.front().value("cpus", Json::array());
  std::vector<std::string> parts;
  std::set<std::string> different;
  for (const Json& text : cpus) {
    parts.push_back(fmt::format("{} on {}", parts.size(), text.get<std::string>()));
    different.insert(text.get<std::string>());
  }
  if (parts.empty()) return "";
  if (different.size() == 1)
    return fmt::format("{}, all on CPU{} {}", parts.size(),
                       different.begin()->find_first_of(",-") == std::string::npos ? "" : "s",
                       *different.begin());
  return "by CPU: " + join(parts, kDot);
}

// What one core, two cores and the loopback can do, where the run looked.
std::string paths_text(const Results& results) {
  std::vector<std::pair<std::string, std::string>> paths;
  for (const CeilRecord& ceil : results.ceilings) {
    if (ceil.kind == "memcpy" && ceil.level.empty()) continue;
    const std::string name = ceil.kind == "memcpy" ? "memcpy " + ceil.level
                             : ceil.kind == "shm"  ? "shm pair"
                                                   : "tcp lo";
    const std::string value = ceil.gbps ? fmt::format("{:.1f} GB/s", *ceil.gbps)
                                        : fmt::format("{} us one way", microseconds_text(ceil.us));
    if (!paths.empty() && paths.back().first == name)
      paths.back().second = fmt::format("{}, {}", value, paths.back().second);
    else
      paths.emplace_back(name, value);
  }
  std::vector<std::string> parts;
  for (const auto& [name, value] : paths) parts.push_back(fmt::format("{} {}", name, value));
  return join(parts, kDot);
}

// memcpy at up to four of the sizes that were run.
std::string ceilings_text(const Results& results) {
  std::map<std::uint64_t, std::vector<double>> speeds;
  for (const CeilRecord& ceil : results.ceilings)
    if (ceil.kind == "memcpy" && ceil.level.empty() && ceil.hot && ceil.gbps && ceil.bytes >= 4096)
      speeds[ceil.bytes].push_back(*ceil.gbps);
  std::vector<std::string> parts;
  const std::size_t step = std::max<std::size_t>(1, (speeds.size() + 2) / 4);
  std::size_t i = 0;
  for (auto& [bytes, values] : speeds)
    if (i++ % step == 0 || i == speeds.size())
      parts.push_back(fmt::format("{:.1f} at {}", median(values), bytes_text(bytes)));
  return parts.empty() ? "" : "memcpy beside the cells, one core, GB/s: " + join(parts, kDot);
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
    if (!cell.hash.empty() && !is_control(cell.backend)) checked.insert({cell.key, cell.backend});
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
    line("ranks", placement_text(results));
  }
  line("libs", libraries_text(results, summary));
  line("ceil", paths_text(results));
  line("copy", ceilings_text(results));
  line("check", check_text(results, summary));
  line("busbw", "n/a (shared memory): the ranks of one host share it");
  return text;
}

namespace {

std::string control_text(const ControlRecord& control) {
  const std::string name =
      control.kind == "aa" ? "A/A " + control.backend : "solo " + control.backend;
  if (!control.ratio.ci95)
    return fmt::format("{} {}, one block: no interval", name, ratio_text(control.ratio.value));
  return fmt::format("{} {} [{}, {}] {}", name, ratio_text(control.ratio.value),
                     ratio_text(control.ratio.ci95->low), ratio_text(control.ratio.ci95->high),
                     to_string(control.trust));
}

// Each warning once; of cells with the words to see them again, the first few.
std::vector<std::string> warning_lines(const Results& results, const std::string& json) {
  constexpr std::size_t kCells = 5;
  std::vector<std::string> lines;
  std::set<std::string> said;
  std::size_t cells = 0;
  const std::string command = results.run.is_object() ? results.run.value("command", "run") : "run";
  for (const WarnRecord& warn : results.warnings) {
    if (!said.insert(warn.text).second) continue;
    std::string text = fmt::format("{} {}", warn.code, warn.text);
    if (!warn.only.empty()) {
      if (++cells > kCells) continue;
      text += json.empty() || json == "-"
                  ? fmt::format("      again: the line below with --only {}", warn.only)
                  : fmt::format("      again: c10d-bench {} --replay {} --only {}", command, json,
                                warn.only);
    }
    lines.push_back(std::move(text));
  }
  if (cells > kCells)
    lines.push_back(
        fmt::format("and so {} more cells: all of them stand in --json", cells - kCells));
  return lines;
}

}  // namespace

std::string footer_text(const Results& results, const Summary& summary, int exit_code,
                        const std::string& json) {
  std::string text = "\n";
  const auto line = [&](const char* label, const std::string& value) {
    text += fmt::format("{:<6} {}\n", label, value);
  };
  if (!summary.compares.empty())
    line("ratio", fmt::format("time / time of {}: above 1 is slower{}", summary.backends.front(),
                              summary.launches > 1 ? "" : "; intervals within one launch only"));
  std::vector<std::string> controls;
  for (const ControlRecord& control : summary.controls) controls.push_back(control_text(control));
  if (!controls.empty()) line("ctl", join(controls, kDot));
  for (const std::string& note : skip_notes(summary)) line("skip", note);
  for (const std::string& warning : warning_lines(results, json)) line("warn", warning);
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
