// SPDX-License-Identifier: BSD-3-Clause
// chaos: random programs, one deviation or one death per case, and a judge.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "c10d/capability.h"
#include "c10d/env.h"
#include "tests/chaos/campaign.h"

namespace c10d::chaos { namespace {

constexpr const char* kHelp = R"(usage: chaos [options]

Runs random programs: collectives, messages, groups in groups, memory, on 2 to 5 processes. In each
case one rank does something else than the others, or dies, or nobody does. Each result is compared
with what it must be; each failure with what the headers promise: no hang, no call that ends well
without all who belong to it, the right rank named, one cause per group, soon; then the others go on
without it. At the end nothing may be left: no process, descriptor, thread, mapping or file.

  chaos --seconds 60                         all backends that are built, seeds from 1 on
  chaos --backend native --seed 1578 --cases 1 -v
                                             repeats one case and tells all about it

  --backend LIST   native, gloo, openmpi, mpich, by commas; mpi: both of them (default: all)
  --seed N         the first seed (default 1); "random" draws one and prints it
  --cases N        as many of each backend (default: as the time allows)
  --seconds N      for how long (default 60; with --cases no limit)
  --jobs N         cases at the same time (default 2)
  --keep-going     do not end at the first finding
  --patience X     this machine is slow: all bounds X times as long (default 1)
  --json FILE      writes the counts and the findings
  --plant FAULT    makes one rank lie: wrong_result, wrong_name, silent, hang, crash, leak, file,
                   orphan; something must be found
  --self-test      plants each of them, and looks whether it is found as what it is
  -v               a line per case, and what the ranks wrote where something was found

Deviations, of one rank:
  none             no rank deviates
  other_op, other_dtype, other_count, other_root, other_reduce_op
                   calls another op than the others, or the same with another argument
  skip, add, swap  leaves a call out, makes one more, makes two in the other order
  kill, exit0, exec
                   dies by SIGKILL, ends with status 0, becomes another program
  stop             is stopped (SIGSTOP) and goes on when the others have ended
  leave            leaves by an exception, which destroys its groups
  abort            calls abort() from another thread
  mute             nobody reads its stdout any more, which is no failure

Exit status: 0 nothing was found, 1 something was, 2 a mistake in the command line.
)";

struct Arguments {
  CampaignOptions campaign;
  std::vector<std::string> backends;  // none: all that there are
  bool self_test = false;
  std::string json;
};

[[noreturn]] void refuse(const std::string& what) {
  std::cerr << "chaos: " << what << "; see chaos --help\n";
  std::exit(2);
}

double number_of(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(value >= 0)) refuse(option + " needs a number, not " + text);
  return value;
}

std::uint64_t seed_of(const std::string& text) {
  if (text == "random") {
    const std::uint64_t seed = std::random_device()() % 1'000'000'000;
    std::printf("chaos: seeds from %llu on\n", static_cast<unsigned long long>(seed));
    return seed;
  }
  return static_cast<std::uint64_t>(number_of("--seed", text));
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

Plant plant_of(const std::string& text) {
  for (int plant = 1; plant < kPlantCount; ++plant)
    if (to_string(static_cast<Plant>(plant)) == text) return static_cast<Plant>(plant);
  refuse("there is no fault " + text + " to plant");
}

Arguments parse(int argc, char** argv) {
  Arguments all;
  CampaignOptions& c = all.campaign;
  bool timed = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&] {
      if (++i >= argc) refuse(option + " needs a value");
      return std::string(argv[i]);
    };
    if (option == "-h" || option == "--help") {
      std::fputs(kHelp, stdout);
      std::exit(0);
    } else if (option == "--backend") {
      all.backends = words_of(value());
    } else if (option == "--seed") {
      c.seed = seed_of(value());
    } else if (option == "--cases") {
      c.cases = static_cast<std::uint64_t>(number_of(option, value()));
    } else if (option == "--seconds") {
      c.seconds = number_of(option, value());
      timed = true;
    } else if (option == "--jobs") {
      c.jobs = std::max(1, static_cast<int>(number_of(option, value())));
    } else if (option == "--patience") {
      c.bounds.patience = number_of(option, value());
    } else if (option == "--keep-going") {
      c.keep_going = true;
    } else if (option == "--json") {
      all.json = value();
    } else if (option == "--plant") {
      c.plant = plant_of(value());
    } else if (option == "--self-test") {
      all.self_test = true;
    } else if (option == "-v") {
      c.verbose = true;
    } else {
      refuse("there is no option " + option);
    }
  }
  if (c.cases > 0 && !timed) c.seconds = 0;
  return all;
}

// Cases are drawn from all ops and dtypes, but no reductions of 8 bits: why the backend cannot take
// one of them, or empty.
std::string what_it_lacks(const std::string& backend) {
  for (const OpTraits& op : kOpTraits)
    for (int d = 0; d < kDTypeCount; ++d) {
      const Query query{.op = op.kind, .dtype = static_cast<DType>(d)};
      if (is_reduction(op.kind) && is_float8(query.dtype)) continue;
      if (const Support support = backend_supports(backend, query); !support) return support.reason;
    }
  return {};
}

// Those that are built; of the others why not.
std::vector<Stage> stages_of(std::vector<std::string> names) {
  std::vector<Stage> stages;
  const std::vector<BackendInfo> known = list_backends();
  if (names.empty())
    for (const BackendInfo& info : known)
      if (info.name.find(':') == std::string::npos) names.push_back(info.name);
  const auto skip = [](const std::string& name, const std::string& why) {
    std::printf("skipped: %s: %s\n", name.c_str(), why.c_str());
  };
  for (const std::string& name : names) {
    if (name == "mpi") {
      for (Stage& stage : stages_of({"openmpi", "mpich"})) stages.push_back(std::move(stage));
    } else if (name == "openmpi" || name == "mpich") {
      const std::string launcher = name == "openmpi" ? C10D_MPIRUN_OPENMPI : C10D_MPIRUN_MPICH;
      if (launcher.empty())
        skip(name, "this build has no mpi backend for it, or there is no mpirun." + name);
      else
        stages.push_back({name, "mpi", launcher});
    } else {
      const auto info = std::find_if(known.begin(), known.end(),
                                     [&](const BackendInfo& any) { return any.name == name; });
      if (info == known.end()) refuse("there is no backend " + name);
      if (!info->available)
        skip(name, info->reason);
      else if (info->needs_launcher)
        skip(name, "its ranks are started by a launcher that chaos does not know");
      else if (const std::string why = what_it_lacks(name); !why.empty())
        skip(name, why);
      else
        stages.push_back({name, name, {}});
    }
  }
  return stages;
}

// What the ranks of one case do.
void print_program(const Stage& stage, std::uint64_t seed) {
  const Plan plan = draw(stage.backend, seed);
  std::printf("%s seed %llu: %s\n", stage.label.c_str(), static_cast<unsigned long long>(seed),
              describe(plan).c_str());
  for (std::size_t group = 0; group < plan.groups.size(); ++group) {
    std::printf("  group %zu: ranks", group);
    for (const int member : plan.groups[group].members) std::printf(" %d", member);
    std::printf("\n");
  }
  for (std::size_t step = 0; step < plan.steps.size(); ++step) {
    std::printf("  step %zu: %s", step, describe(plan.steps[step]).c_str());
    for (const int made : plan.steps[step].made) std::printf(", makes group %d", made);
    std::printf("\n");
  }
}

void print_counts(const Outcome& outcome) {
  std::printf("%-8s %-16s %8s %9s %6s %8s %9s\n", "backend", "deviation", "cases", "deviated",
              "told", "went on", "findings");
  Count all;
  for (const auto& [stage, by_deviation] : outcome.counts)
    for (const auto& [deviation, c] : by_deviation) {
      std::printf(
          "%-8s %-16s %8llu %9llu %6llu %8llu %9llu\n", stage.c_str(), deviation.c_str(),
          static_cast<unsigned long long>(c.cases), static_cast<unsigned long long>(c.deviated),
          static_cast<unsigned long long>(c.told), static_cast<unsigned long long>(c.recovered),
          static_cast<unsigned long long>(c.findings));
      all.cases += c.cases;
    }
  std::printf(
      "Counts are of cases: one rank deviated in it; ranks were told by an error; ranks went "
      "on in a group without the culprit.\n");
  std::printf("chaos: %llu cases in %.0f s, %zu findings\n",
              static_cast<unsigned long long>(all.cases), outcome.seconds, outcome.findings.size());
}

void write_json(const std::string& path, const CampaignOptions& options, const Outcome& outcome) {
  using Json = nlohmann::ordered_json;
  Json counts = Json::array(), findings = Json::array();
  for (const auto& [stage, by_deviation] : outcome.counts)
    for (const auto& [deviation, c] : by_deviation)
      counts.push_back({{"backend", stage},
                        {"deviation", deviation},
                        {"cases", c.cases},
                        {"deviated", c.deviated},
                        {"told", c.told},
                        {"went_on", c.recovered},
                        {"findings", c.findings}});
  for (const Found& found : outcome.findings)
    findings.push_back({{"backend", found.stage},
                        {"seed", found.seed},
                        {"deviation", found.deviation},
                        {"kind", found.kind},
                        {"text", found.text},
                        {"repeat", repeat_command(found)}});
  const Json all{{"seed", options.seed},
                 {"seconds", outcome.seconds},
                 {"counts", std::move(counts)},
                 {"findings", std::move(findings)}};
  std::ofstream out(path);
  out << all.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
  if (!out.flush()) throw std::runtime_error(path + " cannot be written");
}

// Each planted fault must be found as what it is.
int self_test(CampaignOptions options) {
  const auto kind_of = [](Plant plant) -> std::string {
    if (plant == Plant::orphan) return "process";
    return std::string(to_string(plant));
  };
  int missed = 0;
  options.cases = 64;
  options.seconds = 0;
  options.keep_going = true;
  for (int i = 1; i < kPlantCount; ++i) {
    options.plant = static_cast<Plant>(i);
    options.bounds.patience = options.plant == Plant::hang ? 0.3 : 1;
    const std::string kind = options.until = kind_of(options.plant);
    const Outcome outcome = run_campaign(options);
    if (outcome.interrupted) return 1;
    bool found = false;
    for (const Found& finding : outcome.findings) found = found || finding.kind == kind;
    for (const Found& finding : outcome.findings)
      if (const auto at = finding.text.find("/dev/shm/");
          finding.kind == "file" && at != finding.text.npos)
        std::filesystem::remove(finding.text.substr(at));
    std::printf("self-test: %s %s\n", found ? "found" : "MISSED", kind.c_str());
    missed += found ? 0 : 1;
  }
  return missed == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  if (argc >= 5 && std::string(argv[1]) == "serve") {
    const Place place{argv[2], argv[3], std::atoi(argv[4])};
    serve(place, argc > 5 ? std::atoi(argv[5]) : detect_launch().rank);
    return 0;
  }
  Arguments arguments = parse(argc, argv);
  CampaignOptions& options = arguments.campaign;
  options.stages = stages_of(arguments.backends);
  if (options.stages.empty()) return 0;
  end_at_signals();
  if (arguments.self_test) return self_test(options);
  if (options.verbose && options.cases == 1)
    for (const Stage& stage : options.stages) print_program(stage, options.seed);
  const Outcome outcome = run_campaign(options);
  print_counts(outcome);
  if (!arguments.json.empty()) write_json(arguments.json, options, outcome);
  return outcome.findings.empty() && !outcome.interrupted ? 0 : 1;
}

}}  // namespace c10d::chaos

int main(int argc, char** argv) try {
  return c10d::chaos::run(argc, argv);
} catch (const std::exception& error) {
  std::cerr << "chaos: " << error.what() << "\n";
  return 1;
}
