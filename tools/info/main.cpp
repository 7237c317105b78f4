// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "src/recorder/format.h"
#include "tools/info/facts.h"
#include "tools/info/text.h"
#include "tools/manual/manual.h"

namespace c10d { inline namespace v0 { namespace {

constexpr int kUsage = 2;
const std::vector<std::string> kSections = {"version",      "host",   "native",
                                            "gpus",         "launch", "backends",
                                            "capabilities", "limits", "environment"};

void print_text(const nlohmann::ordered_json& facts, const std::vector<std::string>& sections) {
  const bool everything = sections.empty();
  for (const std::string& section : everything ? kSections : sections) {
    const bool is_short = everything && section == "environment";
    fmt::print(
        "{}\n{}\n", section,
        is_short ? short_environment_text(facts["environment"]) : section_text(section, facts));
  }
}

// Reads without the processes' help: they may hang or be stopped.
int print_record(const std::vector<pid_t>& processes, std::size_t last, bool json) {
  const std::vector<GroupRecord> groups = attach(processes);
  if (groups.empty()) {
    fmt::print(stderr,
               "c10d-info: no readable group in process {} or its children: it has ended, has not "
               "joined a group, or belongs to another user\n",
               fmt::join(processes, ", "));
    return 1;
  }
  const std::int64_t now = steady_ns();
  fmt::print("{}", json ? json_of(groups, now, last) : text_of(groups, now, last));
  return 0;
}

int info(int argc, char** argv) {
  CLI::App app("What this build of c10d is and can do on this host.", "c10d-info");
  app.footer(
      "Examples:\n"
      "  c10d-info                       this machine on one screen\n"
      "  c10d-info backends              which backends work here, and why others do not\n"
      "  c10d-info --env                 every variable that is read, with value and meaning\n"
      "  c10d-info --json | jq .host     the same for programs\n"
      "  c10d-info --pid 4711            where the ranks of a running or hanging job are\n"
      "\nA capability is yes, comp (composed of other ops of the wrapped library) or - (with the "
      "reason).");
  std::vector<std::string> sections;
  std::vector<pid_t> processes;
  std::size_t last = 16;
  bool json = false;
  bool environment = false;
  bool all = false;
  app.add_option(
         "SECTION", sections,
         "version host native gpus launch backends capabilities limits environment (default: the "
         "main facts)")
      ->type_name(fmt::format("{}", fmt::join(kSections, "|")))  // for the completion
      ->option_text(" ")
      ->check([](const std::string& section) {
        return std::ranges::find(kSections, section) != kSections.end()
                   ? std::string()
                   : fmt::format("{}: no such section; one of {}", section,
                                 fmt::join(kSections, " "));
      });
  app.add_option("--pid", processes,
                 "instead: what the ranks in this process, or below this c10d-run, are doing")
      ->type_name("PID")
      ->check(CLI::PositiveNumber.description(""));
  app.add_option("--last", last, "with --pid: ops of each rank (16)")
      ->type_name("N")
      ->check(CLI::Range(std::size_t{0}, kRecords).description(""));
  app.add_flag("--json", json, "all of it, or the sections named, as one JSON object");
  app.add_flag("--env", environment, "the section environment");
  app.add_flag("--all", all, "every section");
  if (const auto manual = manual_of(app, argc, argv)) {
    fmt::print("{}", *manual);
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "c10d-info: {}\nc10d-info --help says more.\n", error.what());
    return kUsage;
  }
  if (environment) sections.emplace_back("environment");

  if (!processes.empty()) return print_record(processes, last, json);
  const nlohmann::ordered_json facts = collect_facts();
  if (!json) {
    if (sections.empty() && !all)
      fmt::print("{}", overview_text(facts));
    else
      print_text(facts, all ? std::vector<std::string>() : sections);
    return 0;
  }
  nlohmann::ordered_json chosen;
  for (const std::string& section : sections) chosen[section] = facts[section];
  // Values of variables need not be UTF-8, JSON must.
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  fmt::print("{}\n", (sections.empty() ? facts : chosen).dump(2, ' ', false, kReplace));
  return 0;
}

}}}  // namespace c10d::v0

int main(int argc, char** argv) try {
  const int code = c10d::info(argc, argv);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "c10d-info: stdout: cannot be written\n");
  return code == 0 ? 1 : code;
} catch (const std::exception& error) {
  fmt::print(stderr, "c10d-info: {}\n", error.what());
  return 1;
}
