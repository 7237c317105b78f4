// SPDX-License-Identifier: BSD-3-Clause
#include "bench/report/banner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "bench/model/bandwidth.h"
#include "bench/text/command_line.h"
#include "bench/text/format.h"

namespace c10d::bench {
namespace {

using Parts = std::vector<std::string>;

Parts host_parts(const Results& results) {
  std::map<std::string, std::vector<double>> buckets;
  for (const CellRecord& cell : results.cells)
    if (cell.rtt) buckets[cell.rtt->bucket].push_back(cell.rtt->before);
  Parts parts = {machine_text(results.environments.front())};
  for (auto& [bucket, values] : buckets)
    parts.push_back(fmt::format("rtt 0-1 {} us {} ({} block{})", microseconds_text(median(values)),
                                bucket, values.size(), values.size() == 1 ? "" : "s"));
  return parts;
}

Parts library_parts(const Results& results, const Summary& summary) {
  Parts parts;
  for (const std::string& name : summary.backends) {
    for (const Json& environment : results.environments) {
      const Json libs = environment.value("libs", Json::object());
      const auto lib = libs.find(name);
      if (lib == libs.end() || !lib->contains("about")) continue;
      const std::string about = (*lib)["about"].get<std::string>();
      parts.push_back(about.starts_with(name) ? about : fmt::format("{}: {}", name, about));
      break;  // of further launches, or files
    }
  }
  return parts;
}

// The sets of processes that took turns, where there were several.
Parts set_parts(const Results& results) {
  Parts parts;
  for (const Json& set : results.run.value("sets", Json::array())) {
    std::string part = set.value("name", "");
    if (!set.value("side", "").empty()) part += ": " + set.value("program", "");
    for (const Json& variable : set.value("environment", Json::array()))
      part += ", " + variable.get<std::string>();
    for (const Json& environment : results.environments)
      if (environment.value("set", "") == set.value("name", "") &&
          !commit_of(environment).empty() && commit_of(environment) != commit_of(results.run))
        part += ", commit " + commit_of(environment);
    parts.push_back(std::move(part));
  }
  return parts;
}

// Between hosts, who is where; else the CPUs of each rank, or those that all share.
Parts placement_parts(const Results& results) {
  const Json& environment = results.environments.front();
  const Json cpus = environment.value("cpus", Json::array());
  Parts parts;
  for (const Json& host : environment.value("hosts", Json::array()))
    parts.push_back(fmt::format("{} on {}",
                                fmt::join(host.at("ranks").get<std::vector<int>>(), " "),
                                host.at("name").get<std::string>()));
  if (!parts.empty()) return parts;
  std::set<std::string> different;
  for (const Json& text : cpus) {
    parts.push_back(fmt::format("{} on CPU {}", parts.size(), text.get<std::string>()));
    different.insert(text.get<std::string>());
  }
  if (different.size() != 1) return parts;
  return {fmt::format("{}, all on CPU{} {}", parts.size(),
                      different.begin()->find_first_of(",-") == std::string::npos ? "" : "s",
                      *different.begin())};
}

std::string link_name(const CeilRecord& ceil) {
  return fmt::format("link {}{}", ceil.level,
                     ceil.streams < 2 ? "" : fmt::format(" by {} connections", ceil.streams));
}

// What one core, two cores and the loopback can do, where the run looked; or the link.
Parts path_parts(const Results& results) {
  Parts parts;
  for (const CeilRecord& ceil : results.ceilings) {
    if (ceil.is_beside_cells()) continue;
    const std::string name = ceil.kind == "memcpy"        ? "memcpy " + ceil.level
                             : ceil.kind == "device_copy" ? "GPU copy " + ceil.level
                             : ceil.kind == kLink         ? link_name(ceil)
                             : ceil.kind == "shm"         ? "shm pair"
                                                          : "tcp lo";
    parts.push_back(ceil.gbps ? fmt::format("{} {:.1f} GB/s", name, *ceil.gbps)
                              : fmt::format("{} {} us{}", name, microseconds_text(ceil.us),
                                            ceil.kind == kLink ? "" : " one way"));
  }
  return parts;
}

// The plain copy at up to four of the sizes that were run.
Parts copy_parts(const Results& results, const Summary& summary) {
  std::map<std::uint64_t, std::vector<double>> speeds;
  for (const CeilRecord& ceil : results.ceilings)
    if (ceil.is_beside_cells() && (ceil.hot || summary.cuda) && ceil.gbps && ceil.bytes >= 4096)
      speeds[ceil.bytes].push_back(*ceil.gbps);
  Parts parts;
  const std::size_t step = std::max<std::size_t>(1, (speeds.size() + 2) / 4);
  std::size_t i = 0;
  for (auto& [bytes, values] : speeds)
    if (i++ % step == 0 || i == speeds.size())
      parts.push_back(fmt::format("{:.1f} at {}", median(values), bytes_text(bytes)));
  if (!parts.empty())
    parts.front() = fmt::format("{} beside the cells{}, GB/s: {}", summary.copy_name(),
                                summary.cuda ? "" : ", one core", parts.front());
  return parts;
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

// How well the clocks of the hosts were known where ops started by them.
Parts clock_parts(const Results& results) {
  std::optional<double> error;
  for (const CellRecord& cell : results.cells)
    if (cell.sync == "window" && cell.clock_us) error = std::max(error.value_or(0), *cell.clock_us);
  if (!error) return {};
  return {fmt::format("ops start by the clocks of the hosts, which are known to {} us",
                      microseconds_text(*error))};
}

// Files of before there was a loop have no word of it.
std::string sync_text(std::string_view sync) {
  if (sync == "loop") return "loop: ops follow each other, as in a program";
  if (sync == "barrier") return "barrier: each op alone, after a sleep";
  if (sync == "own") return "own: each op after a barrier of its backend, as OSU and IMB measure";
  return "window: each op alone, at an agreed start time";
}

// "node1:4": each host of a run over several, with its ranks.
Parts hosts_of(const Results& results) {
  Parts hosts;
  if (results.environments.empty()) return hosts;
  for (const Json& host : results.environments.front().value("hosts", Json::array()))
    hosts.push_back(
        fmt::format("{}:{}", host.at("name").get<std::string>(), host.at("ranks").size()));
  return hosts;
}

// What goes before the command: alone it starts ranks of this host.
std::string launcher_text(const Results& results) {
  const Parts hosts = hosts_of(results);
  if (hosts.empty()) return "";
  const std::string launcher = results.run.value("launcher", "");
  if (launcher == "c10d")
    return results.run.value("launch_line", fmt::format("c10d-run -H {}", fmt::join(hosts, ","))) +
           " ";
  return fmt::format("under {} on {}: ", launcher, fmt::join(hosts, " "));
}

}  // namespace

std::string command_text(const Results& results, const std::string& only) {
  const Json& run = results.run;
  if (!run.is_object() || !run.contains("argv")) return "";
  Parts words = run["argv"].get<Parts>();
  if (!words.empty()) words.front() = "c10d-bench";
  if (!only.empty()) {
    take_out(words, "--only");
    for (const std::string& name : output_names()) take_out(words, name);
    words.insert(words.end(), {"--only", only});
  }
  for (std::string& word : words)
    if (needs_quotes(word)) word = "'" + word + "'";
  return fmt::format("{}{}", launcher_text(results), fmt::join(words, " "));
}

std::string commit_of(const Json& run) {
  const auto commit = run.find("commit");
  return commit != run.end() && commit->is_string() ? commit->get<std::string>() : "";
}

std::string machine_text(const Json& environment) {
  const int cores = environment.value("cores", 0);
  const int numa = environment.value("numa", 1);
  const std::string virt = environment.value("virt", "");
  return fmt::format("{} CPU{}, {}, {} NUMA node{}{}, Linux {}", cores, cores == 1 ? "" : "s",
                     environment.value("cpu", ""), numa, numa == 1 ? "" : "s",
                     virt.empty() || virt == "none" ? "" : ", VM", environment.value("kernel", ""));
}

Parts busy_parts(const Results& results) {
  const int busy = results.run.is_object() ? results.run.value("busy", 0) : 0;
  if (busy == 0) return {};
  return {fmt::format("{} process{} computed beside the ranks", busy, busy == 1 ? "" : "es")};
}

std::vector<std::string> gpu_parts(const Json& environment) {
  Parts parts;
  const Json gpus = environment.value("gpus", Json::array());
  for (const Json& gpu : gpus)
    parts.push_back(fmt::format("rank {} on cuda:{} {}", gpu.value("rank", 0),
                                gpu.value("device", 0), gpu.value("name", "")));
  if (parts.empty()) return parts;
  const Json driver = environment.value("driver", Json::object());
  parts.push_back(
      fmt::format("CUDA {} by {}", driver.value("cuda", "?"), driver.value("path", "?")));
  if (environment.value("placement", "") == kColocated)
    parts.push_back(
        "1gpu-colocated: ranks share a GPU, so no byte crosses a link, and busbw is n/a");
  return parts;
}

std::string header_text(const Results& results, const Summary& summary, Detail detail,
                        std::size_t width) {
  const Json& run = results.run;
  if (detail == Detail::brief) {
    std::string text;
    if (!results.environments.empty()) {
      const Json& environment = results.environments.front();
      text += entry_text("host", {machine_text(environment)}, width);
      text += entry_text("gpu", gpu_parts(environment), width);
    }
    text += entry_text("busy", busy_parts(results), width);
    text += entry_text("clock", clock_parts(results), width);
    if (summary.wrong > 0) text += entry_text("check", {check_text(results, summary)}, width);
    return text;
  }
  const std::string commit = commit_of(run);
  std::string text =
      fmt::format("{}{}{} · schema 1 · run {} · seed {}\n", run.value("tool", "c10d-bench"),
                  commit.empty() ? "" : " · commit ", commit, run.value("id", "?"),
                  run.value("seed", std::uint64_t{0}));
  const auto entry = [&](std::string_view label, const Parts& parts) {
    text += entry_text(label, parts, width);
  };
  entry("units", {"time of the slowest rank per iteration", "bandwidths in GB/s (1e9 B/s)",
                  "S as in nccl-tests"});
  entry("sync", {sync_text(run.value("sync", "window"))});
  entry("clock", clock_parts(results));
  entry("sets", set_parts(results));
  if (!results.environments.empty()) {
    entry("host", host_parts(results));
    entry("busy", busy_parts(results));
    entry("gpu", gpu_parts(results.environments.front()));
    entry("ranks", placement_parts(results));
    entry("libs", library_parts(results, summary));
  }
  entry("ceil", path_parts(results));
  entry("copy", copy_parts(results, summary));
  entry("check", {check_text(results, summary)});
  return text;
}

namespace {

std::string control_text(const ControlRecord& control) {
  const std::string name =
      control.kind == "aa" ? "A/A " + control.backend : "solo " + control.backend;
  if (!control.ratio.ci95)
    return fmt::format("{} {}, one block: no interval", name, ratio_text(control.ratio));
  return fmt::format("{} {} {}", name, ratio_text(control.ratio), to_string(control.trust));
}

// Each warning once; of cells the first few, with the words to see these again.
Parts warning_lines(const Results& results, const std::string& json) {
  constexpr std::size_t kCells = 5;
  Parts lines;
  Parts cells;
  std::set<std::string> said;
  std::size_t more = 0;
  for (const WarnRecord& warn : results.warnings) {
    if (!said.insert(warn.text).second) continue;
    if (!warn.only.empty() && cells.size() == kCells) {
      ++more;
      continue;
    }
    if (!warn.only.empty()) cells.push_back(warn.only);
    lines.push_back(fmt::format("{} {}", warn.code, warn.text));
  }
  if (more > 0)
    lines.push_back(fmt::format("and so {} more cells: all of them stand in --json", more));
  if (cells.empty()) return lines;
  const std::string only = fmt::format("{}", fmt::join(cells, ","));
  // The file is on one of the hosts.
  lines.push_back(
      json.empty() || json == "-" || !hosts_of(results).empty()
          ? fmt::format("see them again: {}", command_text(results, only))
          : fmt::format("see them again: c10d-bench {} --replay {} --only {}",
                        results.run.is_object() ? results.run.value("command", "run") : "run", json,
                        only));
  return lines;
}

}  // namespace

std::string footer_text(const Results& results, const Summary& summary, Detail detail,
                        int exit_code, const std::string& json, std::size_t width) {
  const bool full = detail == Detail::full;
  std::string text;
  const auto line = [&](const char* label, const std::string& value) {
    text += fmt::format("{:<6} {}\n", label, value);
  };
  if (full && !summary.compares.empty())
    line("ratio", fmt::format("time / time of {}: above 1 is slower{}", summary.base_name(),
                              summary.launches > 1 ? "" : "; intervals within one launch only"));
  Parts controls;
  for (const ControlRecord& control : summary.controls) controls.push_back(control_text(control));
  if (full) text += entry_text("ctl", controls, width);
  for (const std::string& note : skip_notes(summary)) line("skip", note);
  for (const std::string& warning : warning_lines(results, json)) line("warn", warning);
  if (!results.complete)
    line("end", fmt::format("incomplete: the run ended early with exit code {}", exit_code));
  if (full) line("again", command_text(results));
  return text.empty() ? text : "\n" + text;
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
