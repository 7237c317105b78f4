// SPDX-License-Identifier: BSD-3-Clause
#include "src/group/detect_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "c10d/error.h"
#include "c10d/init.h"
#include "src/base/suggest.h"

namespace c10d { inline namespace v0 {
namespace {

struct Value {
  std::string name;
  int number = 0;
};

// What one launcher family says; local facts may be missing.
struct Claim {
  std::string launcher;
  Value rank, size;
  std::optional<Value> local_rank, local_size;
};

std::string text(const Value& value) { return fmt::format("{}={}", value.name, value.number); }
std::string text(const Claim& claim) {
  return fmt::format("{} {}", text(claim.rank), text(claim.size));
}

int parse_number(std::string_view name, std::string_view digits, int max) {
  int number = -1;
  const char* end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stopped != end || number < 0 || number > max) {
    const bool is_number =
        !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
    throw InvalidArgument(
        is_number ? fmt::format("{}={} is more than the {} ranks that a world may have; correct or "
                                "unset it",
                                name, digits, max)
                  : fmt::format("{}={} is no whole number from 0 to {}; correct or unset it", name,
                                digits, max));
  }
  return number;
}

std::optional<Value> read(const EnvLookup& lookup, std::string_view name) {
  if (name.empty()) return std::nullopt;
  const std::optional<std::string> value = lookup(name);
  if (!value) return std::nullopt;
  return Value{std::string(name), parse_number(name, *value, kMaxWorldSize)};
}

// The names under which one launcher publishes the four numbers; empty = it does not.
struct Names {
  std::string_view launcher, rank, size, local_rank, local_size;
};

// In order of precedence. Those above the boundary are compared with one another; below it stand
// schedulers, whose variables leak into everything that runs under them.
constexpr Names kFamilies[] = {
    {"c10d", "C10D_RANK", "C10D_WORLD_SIZE", "C10D_LOCAL_RANK", "C10D_LOCAL_WORLD_SIZE"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"pmi", "PMIX_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"pmi", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"pmi", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", ""},
    {"pmi", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", ""},
    {"pmi", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
     "JSM_NAMESPACE_LOCAL_SIZE"},
};
constexpr std::array<std::string_view, 7> kLaunchers = {"c10d",  "torchrun", "openmpi", "pmi",
                                                        "slurm", "k8s",      "none"};

std::optional<Claim> read_family(const EnvLookup& lookup, const Names& names) {
  std::optional<Value> rank = read(lookup, names.rank);
  std::optional<Value> size = read(lookup, names.size);
  if (!rank || !size) return std::nullopt;
  return Claim{std::string(names.launcher), *rank, *size, read(lookup, names.local_rank),
               read(lookup, names.local_size)};
}

// Tasks on node `node` of a list like "4(x2),3", which means 4, 4, 3.
std::optional<int> slurm_tasks_on(std::string_view list, int node) {
  for (int first = 0; !list.empty();) {
    const std::size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    const std::size_t open = item.find("(x");
    int repeat = 1;
    if (open != std::string_view::npos) {
      if (!item.ends_with(')')) return std::nullopt;
      repeat = parse_number("SLURM_STEP_TASKS_PER_NODE",
                            item.substr(open + 2, item.size() - open - 3), kMaxWorldSize);
    }
    if (node - first < repeat)
      return parse_number("SLURM_STEP_TASKS_PER_NODE", item.substr(0, open), kMaxWorldSize);
    first += repeat;
  }
  return std::nullopt;
}

// Slurm's variables are also there in a batch script and in an allocation's shell, with rank 0 of
// N: there a plain run would wait for ranks that nobody started. Only a numbered step with several
// tasks is a launch.
std::optional<Claim> read_slurm(const EnvLookup& lookup) {
  constexpr std::int64_t kFirstReservedStep = 0xfffffffa;  // batch, external, interactive, ...
  const std::optional<std::string> step = lookup("SLURM_STEP_ID");
  if (!step) return std::nullopt;
  std::int64_t step_id = -1;
  const auto parsed = std::from_chars(step->data(), step->data() + step->size(), step_id);
  if (parsed.ec != std::errc() || step_id < 0 || step_id >= kFirstReservedStep) return std::nullopt;

  const std::optional<Value> rank = read(lookup, "SLURM_PROCID");
  std::optional<Value> size = read(lookup, "SLURM_STEP_NUM_TASKS");
  if (!size) size = read(lookup, "SLURM_NTASKS");
  if (!rank || !size || size->number <= 1) return std::nullopt;
  Claim claim{"slurm", *rank, *size, read(lookup, "SLURM_LOCALID"), std::nullopt};
  const std::optional<std::string> tasks = lookup("SLURM_STEP_TASKS_PER_NODE");
  const std::optional<Value> node = read(lookup, "SLURM_NODEID");
  if (tasks && node) {
    if (const std::optional<int> here = slurm_tasks_on(*tasks, node->number))
      claim.local_size = Value{"SLURM_STEP_TASKS_PER_NODE", *here};
  }
  return claim;
}

std::optional<Claim> read_kubernetes(const EnvLookup& lookup) {
  const std::optional<std::string> index = lookup("JOB_COMPLETION_INDEX");
  if (!index) return std::nullopt;
  std::optional<Value> size = read(lookup, "C10D_WORLD_SIZE");
  if (!size) size = read(lookup, "WORLD_SIZE");
  if (!size) return std::nullopt;
  const int rank = parse_number("JOB_COMPLETION_INDEX", *index, kMaxWorldSize);
  return Claim{"k8s", Value{"JOB_COMPLETION_INDEX", rank}, *size, Value{"one rank per pod", 0},
               Value{"one rank per pod", 1}};
}

// All complete families, best first; at most one per launcher.
std::vector<Claim> read_claims(const EnvLookup& lookup) {
  std::vector<Claim> claims;
  const auto add = [&](std::optional<Claim> claim) {
    if (claim && (claims.empty() || claims.back().launcher != claim->launcher))
      claims.push_back(std::move(*claim));
  };
  for (const Names& names : kFamilies) add(read_family(lookup, names));
  return claims;
}

bool same_place(const Claim& a, const Claim& b) {
  return a.rank.number == b.rank.number && a.size.number == b.size.number;
}

// `mpirun -n 2 torchrun ...`: the outer launcher numbers the inner one's agents.
bool nests(const EnvLookup& lookup, const Claim& inner, const Claim& outer) {
  if (inner.launcher != "c10d" && inner.launcher != "torchrun") return false;
  const std::optional<Value> group = read(lookup, "GROUP_RANK");
  const std::optional<Value> groups = read(lookup, "GROUP_WORLD_SIZE");
  return group && groups && group->number == outer.rank.number &&
         groups->number == outer.size.number;
}

void check_agreement(const EnvLookup& lookup, const std::vector<Claim>& claims) {
  for (std::size_t i = 1; i < claims.size(); ++i) {
    const Claim& winner = claims.front();
    if (same_place(winner, claims[i]) || nests(lookup, winner, claims[i])) continue;
    throw InvalidArgument(
        fmt::format("two launchers disagree about this process: {} says {}, {} says {}; set "
                    "C10D_LAUNCHER={} or "
                    "C10D_LAUNCHER={} to say which one started the ranks",
                    winner.launcher, text(winner), claims[i].launcher, text(claims[i]),
                    winner.launcher, claims[i].launcher));
  }
}

LaunchInfo to_info(const Claim& claim) {
  LaunchInfo info;
  info.rank = claim.rank.number;
  info.size = claim.size.number;
  info.launcher = claim.launcher;
  if (info.rank >= info.size) {
    throw InvalidArgument(fmt::format("{}: the rank must be less than the size", text(claim)));
  }
  // Launchers without local facts are taken to run everything on one host.
  info.local_rank = claim.local_rank ? claim.local_rank->number : info.rank;
  info.local_size = claim.local_size ? claim.local_size->number : info.size;
  info.evidence = {text(claim.rank), text(claim.size)};
  if (claim.local_rank) info.evidence.push_back(text(*claim.local_rank));
  if (claim.local_size) info.evidence.push_back(text(*claim.local_size));
  if (info.local_rank >= info.local_size) {
    throw InvalidArgument(
        fmt::format("local rank {} of {} ({}): the rank must be less than the size",
                    info.local_rank, info.local_size, fmt::join(info.evidence, " ")));
  }
  return info;
}

// What the user settled with C10D_LAUNCHER.
LaunchInfo from_chosen(const EnvLookup& lookup, const std::string& chosen) {
  std::vector<Claim> claims = read_claims(lookup);
  if (std::optional<Claim> slurm = read_slurm(lookup)) claims.push_back(*slurm);
  if (std::optional<Claim> kubernetes = read_kubernetes(lookup)) claims.push_back(*kubernetes);
  for (const Claim& claim : claims) {
    if (claim.launcher != chosen) continue;
    LaunchInfo info = to_info(claim);
    info.evidence.insert(info.evidence.begin(), "C10D_LAUNCHER=" + chosen);
    return info;
  }
  throw InvalidArgument(fmt::format(
      "C10D_LAUNCHER={}, but that launcher's rank and size are not both in the environment",
      chosen));
}

void check_not_half_set(const EnvLookup& lookup, std::string_view name, std::string_view partner) {
  const std::optional<Value> value = read(lookup, name);
  if (!value || lookup(partner)) return;
  throw InvalidArgument(
      fmt::format("{} is set but {} is not; set both or neither", text(*value), partner));
}

}  // namespace

LaunchInfo detect_launch(const EnvLookup& lookup) {
  if (const std::optional<std::string> chosen = lookup("C10D_LAUNCHER")) {
    if (*chosen == "none") return {0, 1, 0, 1, "none", {"C10D_LAUNCHER=none"}};
    if (std::find(kLaunchers.begin(), kLaunchers.end(), *chosen) == kLaunchers.end()) {
      throw InvalidArgument(fmt::format("C10D_LAUNCHER={}: no such launcher; known are {}", *chosen,
                                        fmt::join(kLaunchers, ", ")));
    }
    return from_chosen(lookup, *chosen);
  }
  check_not_half_set(lookup, "C10D_RANK", "C10D_WORLD_SIZE");
  const std::vector<Claim> claims = read_claims(lookup);
  if (!claims.empty()) {
    check_agreement(lookup, claims);
    const Claim& first = claims.front();
    // `srun --mpi=pmi2` speaks PMI too, but Slurm's own variables also say who is on this host.
    if (first.launcher == "pmi" && !first.local_size) {
      const std::optional<Claim> slurm = read_slurm(lookup);
      if (slurm && same_place(first, *slurm)) return to_info(*slurm);
    }
    return to_info(first);
  }
  if (const std::optional<Claim> slurm = read_slurm(lookup)) return to_info(*slurm);
  if (const std::optional<Claim> kubernetes = read_kubernetes(lookup)) return to_info(*kubernetes);
  check_not_half_set(lookup, "C10D_WORLD_SIZE", "C10D_RANK");
  // Variables with such plain names may mean something else, but not beside a place to meet: a
  // forgotten one would let every rank run alone.
  if (lookup("MASTER_ADDR")) {
    check_not_half_set(lookup, "RANK", "WORLD_SIZE");
    check_not_half_set(lookup, "WORLD_SIZE", "RANK");
  }
  return {0, 1, 0, 1, "none", {}};
}

LaunchInfo detect_launch() {
  return detect_launch([](std::string_view name) { return env(name); });
}

}}  // namespace c10d::v0
