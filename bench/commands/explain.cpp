// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/explain.h"

#include <fmt/format.h>

#include <filesystem>

#include "bench/commands/native_probe.h"
#include "bench/measure/machine.h"
#include "bench/measure/native_algorithms.h"
#include "bench/run/controller.h"
#include "bench/text/format.h"
#include "c10d/env.h"
#include "c10d/spi/plan.h"

namespace c10d::bench {
namespace {

[[noreturn]] void throw_one_way(const std::string& op) {
  throw InvalidArgument(fmt::format("{}: native runs it in one way only", op));
}

void print_network(const PlanReport& report) {
  fmt::print("group      over hosts: the algorithm between them\nnetwork    {}, as measured\n",
             report.network);
  if (report.values != 0)
    fmt::print("values     up to {} of a host for each sum: {:g} times its bytes{}\n",
               report.values, report.inputs,
               report.values == 1
                   ? ""
                   : "; one, where all hosts have 2^k ranks each, which follow each other");
  fmt::print("\n");
}

}  // namespace

int run_explain(const ExplainOptions& options, const std::vector<std::string>& argv) {
  const BenchOp op = bench_op_from_string(options.op);
  const int ranks = ranks_to_probe(options.ranks);
  const std::uint64_t unit =
      size_of(options.dtype) * static_cast<std::uint64_t>(facts_of(op).sharded ? ranks : 1);
  if (options.bytes % unit != 0)
    throw InvalidArgument(
        fmt::format("{} {}: S is {} shards of whole {} elements: a multiple of {} bytes",
                    options.op, options.bytes, ranks, to_string(options.dtype), unit));
  refuse_beyond_memory(ranks, options.bytes);
  if (detect_launch().launcher == "none") {
    for (const OpAlgorithms& known : native_algorithms(2))
      if (known.op == options.op && known.names.empty()) throw_one_way(options.op);
    return launch_self(argv, ranks);
  }
  const std::string forced = env("C10D_NATIVE_PLAN").value_or("");
  Probe probe;
  const PlanReport report =
      probe.control().plan({facts_of(op).kind, options.dtype, options.bytes, options.registered});
  const bool is_over_hosts = is_between_hosts(detect_launch());
  if (report.options.empty()) {
    if (!is_over_hosts) throw_one_way(options.op);
    if (!probe.is_root()) return 0;
    fmt::print(
        "{} {}, {} ranks over hosts: there is one way: a small op is over with the "
        "agreement of the ranks, others have one algorithm between hosts "
        "(docs/native.md)\n",
        options.op, bytes_text(options.bytes), probe.control().size());
    if (!report.network.empty()) print_network(report);
    return 0;
  }
  probe.open(forced, options.registered, options.bytes);
  const double us = probe.measure(op, options.dtype, options.bytes, 0.5);
  if (!probe.is_root()) return 0;
  const PlanOption& taken = report.options.front();
  fmt::print("{} {} {}, {} ranks, {} memory\n", options.op, to_string(options.dtype),
             bytes_text(options.bytes), probe.control().size(),
             options.registered ? "registered" : "plain");
  if (is_over_hosts)
    print_network(report);
  else
    fmt::print("group      {}\ntuning     {}{}\n\n", report.fingerprint,
               std::filesystem::exists(report.path) ? "" : "none: c10d-bench tune writes ",
               report.path);
  const std::string hosts_plan = env("C10D_NATIVE_HOSTS_PLAN").value_or("");
  if (!is_over_hosts)
    fmt::print("plan       {}{}\n", taken.name, forced.empty() ? "" : "  (C10D_NATIVE_PLAN)");
  else if (hosts_plan.empty() || report.forced)
    fmt::print("plan       {}{}\n", taken.name, report.forced ? "  (C10D_NATIVE_HOSTS_PLAN)" : "");
  else
    fmt::print("plan       {}  (C10D_NATIVE_HOSTS_PLAN={} names none that applies here)\n",
               taken.name, hosts_plan);
  fmt::print("predicted  {} us by {}\n", microseconds_text(taken.us),
             taken.measured  ? "c10d-bench tune"
             : is_over_hosts ? "a model of that network"
                             : "the built-in model");
  fmt::print("bound      {} us{}\n", microseconds_text(report.bound_us),
             is_over_hosts ? " in that network" : "");
  fmt::print("measured   {} us in the fastest tenth", microseconds_text(us));
  if (!is_over_hosts) fmt::print(", {:.0f} % of the bound's pace", 100 * report.bound_us / us);
  fmt::print("\n\n");
  for (std::size_t i = 1; i < report.options.size(); ++i)
    fmt::print("{}  {:<28} {:>9} us{}\n", i == 1 ? "instead of" : "          ",
               report.options[i].name, microseconds_text(report.options[i].us),
               report.options[i].measured ? "" : "  (model)");
  return 0;
}

}  // namespace c10d::bench
