// SPDX-License-Identifier: BSD-3-Clause
#include "bench/cli/read_run.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/cli/other_spellings.h"
#include "bench/cli/values.h"
#include "bench/measure/buffers.h"
#include "bench/measure/machine.h"
#include "bench/model/column_name.h"
#include "bench/report/table.h"
#include "bench/text/format.h"
#include "c10d/env.h"

namespace c10d::bench {
namespace {

std::vector<BenchOp> ops_of(const std::vector<std::string>& names) {
  std::vector<BenchOp> ops;
  for (const std::string& name : names) {
    if (name == "all") {
      for (const OpFacts& facts : op_facts()) ops.push_back(facts.op);
    } else {
      for (const std::string& part : split(name)) ops.push_back(bench_op_from_string(part));
    }
  }
  if (ops.empty()) ops.push_back(BenchOp::all_reduce);
  keep_first_of_each(ops);
  return ops;
}

// The values of an enumeration of `count` that `text` names, or all of them.
template <class T>
std::vector<T> values_of(const std::string& text, int count, T (*from_string)(std::string_view)) {
  std::vector<T> values;
  for (const std::string& name : split(text)) {
    if (name == "all") {
      for (int i = 0; i < count; ++i) values.push_back(static_cast<T>(i));
    } else {
      values.push_back(from_string(name));
    }
  }
  keep_first_of_each(values);
  return values;
}

std::vector<std::uint64_t> sizes_of(const RawOptions& raw) {
  std::vector<std::uint64_t> sizes;
  for (const std::string& size : split(raw.sizes)) sizes.push_back(bytes_of("--sizes", size));
  if (!raw.sizes.empty()) return sizes;
  const std::uint64_t min = bytes_of("--min", raw.min);
  const std::uint64_t max = bytes_of("--max", raw.max);
  const std::uint64_t step = raw.step.empty() ? 0 : bytes_of("--step", raw.step);
  if (min > max) throw InvalidArgument(fmt::format("--min {} is above --max {}", raw.min, raw.max));
  if (!(raw.factor > 1)) throw InvalidArgument("--factor: must be above 1");
  const auto steps = step > 0 ? static_cast<double>(max - min) / static_cast<double>(step)
                              : std::log(static_cast<double>(max) / static_cast<double>(min)) /
                                    std::log(raw.factor);
  if (steps > 10'000)
    throw InvalidArgument(fmt::format("--{}: more than 10000 sizes", step > 0 ? "step" : "factor"));
  return size_range(min, max, raw.factor, step);
}

void read_cases(const RawOptions& raw, CaseOptions& cases) {
  Sweep& sweep = cases.sweep;
  sweep.ops = ops_of(raw.ops);
  sweep.dtypes = values_of(raw.dtypes, kDTypeCount, dtype_of);
  sweep.redops = values_of(raw.redops, kReduceOpCount, redop_of);
  sweep.places = one_of<std::vector<Place>>(
      "--place", raw.place,
      {{"out", {Place::out}}, {"in", {Place::in}}, {"both", {Place::out, Place::in}}});
  if (raw.root == "all") {
    cases.all_roots = true;
  } else {
    const auto root = must(parse_bytes(raw.root), "--root", raw.root, "a rank, or all");
    if (root > 1'000'000) throw InvalidArgument(fmt::format("--root {}: no such rank", root));
    sweep.roots = {static_cast<int>(root)};
  }
  sweep.sizes = sizes_of(raw);
  cases.cuda = is_cuda(raw);
  const std::string cache = !raw.cache.empty() ? raw.cache : cases.cuda ? "rotate" : "hot";
  sweep.caches = one_of<std::vector<Cache>>("--cache", cache,
                                            {{"hot", {Cache::hot}},
                                             {"rotate", {Cache::rotate}},
                                             {"cold", {Cache::cold}},
                                             {"auto", {Cache::hot, Cache::rotate}}});
  if (raw.cache == "auto") sweep.last_level = last_level_bytes();
  if (raw.cache == "cold" && cases.cuda)
    throw InvalidArgument("--cache cold: nothing flushes the L2 of a GPU; take rotate");
  if (raw.cache == "cold" && !can_flush())
    throw InvalidArgument("--cache cold: no way to flush this CPU's caches; take rotate");
  if (sweep.dtypes.empty() || sweep.redops.empty() || sweep.sizes.empty())
    throw InvalidArgument("--dtype, --redop and --sizes must name at least one value each");
}

// "mpi:16M", "raw:mpi:16M", "all_reduce:mpi:16M".
CellFilter filter_of(const std::string& text) {
  constexpr const char* kShape = "a cell; write BACKEND:SIZE or OP:BACKEND:SIZE";
  CellFilter filter;
  const std::size_t last = text.rfind(':');
  if (last == std::string::npos || last == 0) must<int>({}, "--only", text, kShape);
  filter.bytes = must(parse_bytes(text.substr(last + 1)), "--only", text, kShape);
  filter.backend = text.substr(0, last);
  const std::size_t first = filter.backend.find(':');
  if (first == std::string::npos || filter.backend.starts_with("raw:") || is_torch(filter.backend))
    return filter;
  filter.op = bench_op_from_string(filter.backend.substr(0, first));
  filter.backend.erase(0, first + 1);
  return filter;
}

// Of the backends the base stays, for the others to be compared with.
void read_only(const RawOptions& raw, bool builds, std::vector<CellFilter>& only,
               std::vector<std::string>& backends) {
  for (const std::string& item : split(raw.only)) {
    CellFilter& filter = only.emplace_back(filter_of(item));
    if (builds && (filter.backend.ends_with("@A") || filter.backend.ends_with("@B")))
      filter.backend.resize(filter.backend.size() - 2);  // both are measured
  }
  if (only.empty()) return;
  for (const CellFilter& filter : only)
    if (!backends.empty() &&
        std::find(backends.begin(), backends.end(), filter.backend) == backends.end())
      throw InvalidArgument(fmt::format("--only: {} is none of the backends {}", filter.backend,
                                        fmt::join(backends, " ")));
  std::erase_if(backends, [&](const std::string& name) {
    return name != backends.front() &&
           std::none_of(only.begin(), only.end(),
                        [&](const CellFilter& filter) { return filter.backend == name; });
  });
}

void read_backends(const RawOptions& raw, BackendOptions& backends) {
  backends.names = split(raw.backends);
  keep_first_of_each(backends.names);
  if (backends.names.empty() && !raw.backends.empty())
    throw InvalidArgument("--backends must name at least one backend");
  backends.heap = one_of<bool>("--memory", raw.memory, {{"plain", false}, {"heap", true}});
}

// --against and --env: this program is A, the other one B.
std::vector<Build> builds_of(const RawOptions& raw, bool compare) {
  if (raw.against.empty() && raw.side_variables.empty()) return {};
  if (!compare) throw InvalidArgument("--against and --env are options of c10d-bench compare");
  std::vector<Build> builds = {{.side = "A"},
                               {.side = "B", .program = raw.against == "self" ? "" : raw.against}};
  for (const std::string& text : raw.side_variables) {
    const std::size_t equals = text.find('=');
    const bool is_of_a = text.starts_with("A:");
    if (!(is_of_a || text.starts_with("B:")) || equals == std::string::npos || equals == 2)
      throw InvalidArgument(fmt::format(
          "--env {}: write A:NAME=VALUE for this build, B:NAME=VALUE for the other", text));
    builds[is_of_a ? 0 : 1].environment.push_back(text.substr(2));
  }
  return builds;
}

void read_measurement(const RawOptions& raw, Measurement& measurement) {
  measurement.seconds = seconds_of("--time", raw.time);
  measurement.timeout = seconds_of("--timeout", raw.timeout);
  if (raw.warmup != "auto") {
    const auto count = must(parse_bytes(raw.warmup), "--warmup", raw.warmup, "a count, or auto");
    measurement.warmup = static_cast<int>(std::min<std::uint64_t>(count, 1'000'000));
  }
  measurement.random_order =
      one_of<bool>("--order", raw.order, {{"random", true}, {"alternate", false}});
  measurement.dirty = one_of<bool>("--dirty", raw.dirty, {{"on", true}, {"off", false}});
  measurement.start_skew = must(parse_seconds(raw.start_skew), "--start-skew", raw.start_skew,
                                "a duration; write 50us or 1ms");
  if (measurement.start_skew < 0 || measurement.start_skew > 1)
    throw InvalidArgument(
        fmt::format("--start-skew {}: from 0 to 1 s, in every iteration", raw.start_skew));
  measurement.sync = one_of<Sync>("--sync", raw.sync,
                                  {{"loop", Sync::loop},
                                   {"window", Sync::window},
                                   {"barrier", Sync::barrier},
                                   {"own", Sync::own}});
  if (measurement.sync == Sync::own && measurement.start_skew > 0)
    throw InvalidArgument(
        "--start-skew: with --sync own a barrier comes before each op, and ends it; leave one out");
  measurement.check = one_of<Check>("--check", raw.check,
                                    {{"first", Check::first},
                                     {"all", Check::all},
                                     {"off", Check::off},
                                     {"1", Check::first},  // as in nccl-tests
                                     {"0", Check::off}});
}

void read_verdicts(const RawOptions& raw, VerdictOptions& verdicts) {
  verdicts.control =
      one_of<Control>("--control", raw.control,
                      {{"on", Control::on}, {"solo", Control::solo}, {"off", Control::off}});
  verdicts.equiv = fraction_of("--equiv", raw.equiv, "a fraction; write 2%");
  verdicts.min_effect = fraction_of("--min-effect", raw.min_effect, "a fraction; write 5%");
}

// One file would overwrite the other at the end.
void refuse_outputs(const OutputOptions& output) {
  std::map<std::string, const char*> taken;
  for (const auto& [path, option] :
       {std::pair(output.json, "--json"), std::pair(output.csv, "--csv"),
        std::pair(output.markdown, "--md"), std::pair(output.report, "--report"),
        std::pair(output.svg, "--svg")}) {
    if (path == "-" && path != output.json)
      throw InvalidArgument(fmt::format("{} -: only --json writes to stdout; give a file", option));
    const auto [other, is_new] = taken.emplace(path, option);
    if (!is_new && !path.empty() && !path.starts_with("/dev/"))
      throw InvalidArgument(fmt::format("{} {}: {} writes there too", option, path, other->second));
  }
}

void read_output(const RawOptions& raw, OutputOptions& output) {
  output.color =
      one_of<Switch>("--color", raw.color,
                     {{"auto", Switch::automatic}, {"always", Switch::on}, {"never", Switch::off}});
  output.progress =
      one_of<Switch>("--progress", raw.progress,
                     {{"auto", Switch::automatic}, {"on", Switch::on}, {"off", Switch::off}});
  output.columns = split(raw.columns);
  for (const std::string& column : output.columns) {
    const auto& known = column_facts();
    if (std::none_of(known.begin(), known.end(),
                     [&](const ColumnFacts& facts) { return facts.name == column; }))
      throw InvalidArgument(
          fmt::format("--columns {}: no such column; c10d-bench list columns prints them", column));
  }
  refuse_outputs(output);
}

// What says something of memory of the host.
void refuse_on_gpus(const RunOptions& options) {
  for (const auto& [is_given, option] :
       {std::pair(!options.backends.algo.empty(), "--algo"),
        std::pair(options.measurement.sync == Sync::own, "--sync own"),
        std::pair(options.cases.sweep.concurrent > 1, "--concurrent")})
    if (is_given)
      throw InvalidArgument(fmt::format("{}: not with --device cuda; leave it out", option));
}

}  // namespace

bool is_cuda(const RawOptions& raw) {
  return one_of<bool>("--device", raw.device, {{"cpu", false}, {"cuda", true}});
}

void read_run(const RawOptions& raw, RunOptions& options) {
  read_cases(raw, options.cases);
  read_backends(raw, options.backends);
  if (options.cases.cuda) refuse_on_gpus(options);
  if (options.measurement.graph_ops > 0 && !options.cases.cuda)
    throw InvalidArgument(fmt::format(
        "-G {}: ops on memory of the host are in no CUDA graph; add --device cuda, or leave it out",
        options.measurement.graph_ops));
  if (options.backends.names.empty() && !options.compare)
    options.backends.names = {options.cases.cuda ? "nccl" : "native"};
  read_measurement(raw, options.measurement);
  options.placement.bind = one_of<Bind>(
      "--bind", raw.bind,
      {{"auto", Bind::automatic}, {"set", Bind::set}, {"core", Bind::core}, {"none", Bind::none}});
  read_verdicts(raw, options.verdicts);
  options.builds = builds_of(raw, options.compare);
  read_only(raw, !options.builds.empty(), options.cases.only, options.backends.names);
  read_output(raw, options.output);
}

}  // namespace c10d::bench
