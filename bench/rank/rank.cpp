// SPDX-License-Identifier: BSD-3-Clause
#include "bench/rank/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>

#include "bench/measure/case_list.h"
#include "bench/measure/link.h"
#include "bench/measure/machine.h"
#include "bench/rank/case_runner.h"
#include "bench/rank/gpu_ranks.h"
#include "c10d/env.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

// Whether records are due that say the same in every launch.
bool is_first_launch(const WorkerOptions& worker) {
  return worker.launch <= 0 && worker.solo.empty();
}

void warn_of_binding(const LaunchState& launch, const ControlGroup::Binding& binding) {
  const Bind asked = launch.options.placement.bind;
  const Meeting& meeting = launch.control.meeting();
  const int ranks = launch.control.size();
  const auto ranks_here = launch.control.own_host().ranks.size();
  if (meeting.oversubscribed() && launch.options.cases.cuda)
    launch.warn("W001",
                fmt::format("{} ranks on {} CPUs: calls and times include waiting for a CPU", ranks,
                            meeting.cpu_count()));
  else if (meeting.oversubscribed() && meeting.is_between_hosts())
    launch.warn("W001", "a host has more ranks than CPUs: times include waiting for a CPU");
  else if (meeting.oversubscribed())
    launch.warn("W001",
                fmt::format("{} ranks on {} CPUs: times include waiting for a CPU; they are "
                            "those of bursts of up to {} ops without a synchronisation",
                            ranks, meeting.cpu_count(), burst_of(Case{})));
  if ((asked == Bind::set || asked == Bind::core) && !binding.alike)
    launch.warn("W008",
                "--bind: the launcher has bound the ranks already; they stay where they are");
  if (asked == Bind::set && binding.alike && !binding.bound)
    launch.warn("W008", fmt::format("--bind set: {} CPUs are fewer than two for each of {} ranks, "
                                    "which share them all",
                                    binding.cpus, ranks_here));
  if (asked == Bind::core)
    launch.warn("W008",
                "--bind core: progress threads of a backend, as gloo's, share the one CPU of "
                "their rank");
}

void write_environment(const LaunchState& launch, const std::vector<Column>& columns,
                       std::size_t cpus, const GpuRanks& gpus) {
  launch.control.meeting().barrier();
  if (launch.control.rank() != 0) return;
  std::map<std::string, std::string> about;
  for (const Column& column : columns)
    if (column.subject) about[column.name] = column.subject->description();
  Json line = environment_json(about);
  line["cores"] = cpus;
  line["cpus"] = launch.control.cpus();
  if (launch.control.meeting().is_between_hosts())
    for (const ControlGroup::Host& host : launch.control.hosts())
      line["hosts"].push_back({{"name", host.name}, {"ranks", host.ranks}});
  if (launch.seat != nullptr) put_gpus(gpus, line);
  launch.sink(line);
  if (const auto path = env("C10D_CUDA_LIBRARY"); path && launch.seat != nullptr)
    launch.warn("W022", fmt::format("CUDA is {} (C10D_CUDA_LIBRARY): where that stands in for a "
                                    "driver, no time here is one of a GPU",
                                    *path));
  const RunOptions& options = launch.options;
  if (launch.seat != nullptr && options.compare && options.verdicts.control != Control::off)
    launch.sink(to_json(gpu_ceiling(*launch.seat, launch.number())));
}

// What two hosts can exchange: the first ranks of the first two measure it, alone.
void measure_ceiling_between_hosts(const LaunchState& launch) {
  ControlGroup& control = launch.control;
  const auto address = env("MASTER_ADDR");  // of the host of rank 0, as the others reach it
  const auto measure = [&](End end) {
    if (!address) throw InvalidArgument("MASTER_ADDR is not set");
    return measure_link(end, control.store(), *address, std::chrono::seconds(5));
  };
  try {
    if (control.rank() == 0) {
      const LinkRates rates = measure(End::listens);
      const int number = launch.number();
      launch.sink(to_json(CeilRecord{kLink, "round trip", 1, number, {}, rates.round_trip_us}));
      for (const LinkRates::Flow& flow : rates.flows) {
        CeilRecord ceil{kLink, "one way", 0, number, flow.one_way, 0};
        ceil.streams = flow.streams;
        launch.sink(to_json(ceil));
        ceil.level = kBothWays;
        ceil.gbps = flow.both_ways;
        launch.sink(to_json(ceil));
      }
    } else if (control.rank() == control.hosts()[1].ranks.front()) {
      measure(End::connects);
    }
  } catch (const std::exception& error) {
    launch.warn("W023", fmt::format("no %ceil: {}", error.what()));
  }
  control.meeting().barrier();
}

// Each rank has read its own options and list of backends.
void compare_plans(const RunOptions& options, std::size_t cases, ControlGroup& control) {
  const std::string own =
      fmt::format("{} and {} cases", fmt::join(options.backends.names, ","), cases);
  const std::vector<std::string> plans = control.gather("plan", own);
  const auto other =
      std::ranges::find_if(plans, [&](const std::string& plan) { return plan != plans.front(); });
  if (other == plans.end()) return;
  throw InvalidArgument(fmt::format("rank 0 measures {}, rank {} {}: give all ranks the same -B",
                                    plans.front(), other - plans.begin(), *other));
}

// Ops cannot start together on hosts whose clocks nobody can compare.
void compare_clocks(const LaunchState& launch, RunOptions& options) {
  const Meeting::Clocks clocks = launch.control.meeting().compare_clocks();
  if (clocks.error) return;
  options.measurement.sync = Sync::barrier;
  launch.warn("W024", fmt::format("each op starts by barrier: the clocks of the hosts cannot be "
                                  "compared: {}",
                                  clocks.why));
}

int measure_all(RunOptions options, const Sink& sink) {
  const WorkerOptions& worker = options.worker;
  Watchdog watchdog;
  ControlGroup control(worker.token_path, options.measurement.timeout);
  LaunchState launch{options, control, watchdog, control.rank() == 0 ? sink : [](const Json&) {}};
  const std::vector<Case> cases = cases_of(options.cases, control.size());
  compare_plans(options, cases.size(), control);
  watchdog.expect("making groups", options.measurement.timeout * 3 + 60);
  const bool between_hosts = control.meeting().is_between_hosts();
  if (between_hosts) launch.placement = kSeveralHosts;
  if (between_hosts && options.measurement.sync == Sync::window) compare_clocks(launch, options);
  // Before the backends are opened, so that their threads are where the rank is.
  const ControlGroup::Binding binding = control.bind(options.placement.bind);
  if (is_first_launch(worker)) warn_of_binding(launch, binding);
  std::optional<GpuSeat> seat;
  GpuRanks gpus;
  if (options.cases.cuda) {
    seat.emplace(control.local_rank());
    launch.seat = &*seat;
    gpus = gather_gpus(control, *seat);
    launch.placement = gpus.placement();
  }
  SubjectContext context;
  context.seat = launch.seat;
  context.timeout = duration_of(options.measurement.timeout);
  context.algorithm = options.backends.algo;
  context.groups = options.cases.sweep.concurrent;
  CaseMemory memory;  // before the columns: it outlives their ops
  std::vector<Column> columns = open_columns(
      worker.solo.empty() ? options.backends.names : std::vector{worker.solo}, context, control);
  memory = allocate(memory_of(cases, control.size(), options.cases.window), options.backends.heap,
                    columns, launch.seat);
  if (is_first_launch(worker)) write_environment(launch, columns, binding.cpus, gpus);
  if (is_first_launch(worker) && between_hosts && !seat) measure_ceiling_between_hosts(launch);
  CaseRunner runner(launch, columns, memory);
  for (std::size_t index = 0; index < cases.size(); ++index)
    if (worker.solo.empty() || is_control_case(index)) runner.run(cases[index], index);
  for (Column& column : columns)
    if (column.code.empty()) column.subject->shutdown();
  control.meeting().barrier();
  launch.sink(Json{{"t", kLaunchDone}});
  control.group().shutdown();
  return launch.wrong ? 3 : launch.failures > 0 ? 1 : 0;
}

}  // namespace

int exit_code_of(const std::function<int()>& measure) {
  try {
    return measure();
  } catch (const InvalidArgument& error) {
    fmt::print(stderr, "c10d-bench: {}\n", error.what());
    return 2;
  } catch (const DistTimeoutError& error) {
    fmt::print(stderr, "c10d-bench: {}\n", error.what());
    return 124;
  } catch (const std::exception& error) {
    fmt::print(stderr, "c10d-bench: {}\n", error.what());
    return 1;
  }
}

int run_rank(const RunOptions& options, const Sink& sink) {
  return exit_code_of([&] { return measure_all(options, sink); });
}

}  // namespace c10d::bench
