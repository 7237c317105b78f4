// SPDX-License-Identifier: BSD-3-Clause
#include "bench/cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <type_traits>
#include <variant>

#include "bench/cli/arguments.h"
#include "bench/cli/help.h"
#include "bench/cli/option_table.h"
#include "bench/measure/buffers.h"
#include "bench/measure/machine.h"
#include "bench/report/table.h"
#include "bench/text/format.h"
#include "c10d/error.h"
#include "c10d/version.h"

namespace c10d::bench {
namespace {

constexpr const char* kExamples =
    "Examples:\n  c10d-bench compare -n 2 -B native,gloo,mpi all_reduce -b 8 -e 64M -f 8\n"
    "  c10d-bench run -n 4 all -s 1K,1M\n";
constexpr const char* kFooter =
    "Values in brackets are the defaults.\n"
    "Exit codes: 0 ok, 1 a backend failed or a row is outside, 2 usage, 3 wrong data,\n"
    "5 noisy (--strict), 77 nothing could run, 124 timeout, 128+n signal.";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  while (from <= text.size()) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    if (to > from) parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

template <class T>
T must(std::optional<T> value, const char* option, const std::string& text, const char* what) {
  if (!value) throw InvalidArgument(fmt::format("{} {}: not {}", option, text, what));
  return *value;
}

std::uint64_t bytes_of(const char* option, const std::string& text) {
  return must(parse_bytes(text), option, text, "a size; write 8, 4K, 16M or 1G");
}

std::uint64_t bytes_above_zero(const char* option, const std::string& text) {
  const std::uint64_t bytes = bytes_of(option, text);
  if (bytes == 0) throw InvalidArgument(fmt::format("{} {}: must be above zero", option, text));
  return bytes;
}

double fraction_of(const char* option, const std::string& text, const char* what) {
  const double fraction = must(parse_fraction(text), option, text, what);
  if (fraction > 1) throw InvalidArgument(fmt::format("{} {}: not {}", option, text, what));
  return fraction;
}

double seconds_of(const char* option, const std::string& text) {
  const double seconds =
      must(parse_seconds(text), option, text, "a duration; write 0.05s or 200ms");
  if (seconds <= 0) throw InvalidArgument(fmt::format("{} {}: must be above zero", option, text));
  return seconds;
}

// The value of an option that is one of a few words.
template <class T>
T word(const char* option, const std::string& text,
       const std::vector<std::pair<std::string_view, T>>& words) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : words) {
    if (text == name) return value;
    names.push_back(name);
  }
  throw InvalidArgument(fmt::format("{} {}: one of {}", option, text, fmt::join(names, ", ")));
}

template <class T>
void keep_first_of_each(std::vector<T>& values) {
  std::set<T> seen;
  std::erase_if(values, [&](const T& value) { return !seen.insert(value).second; });
}

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

std::vector<std::uint64_t> sizes_of(const Texts& texts) {
  std::vector<std::uint64_t> sizes;
  for (const std::string& size : split(texts.sizes))
    sizes.push_back(bytes_above_zero("--sizes", size));
  if (!texts.sizes.empty()) return sizes;
  const std::uint64_t min = bytes_above_zero("--min", texts.min);
  const std::uint64_t max = bytes_of("--max", texts.max);
  const std::uint64_t step = texts.step.empty() ? 0 : bytes_above_zero("--step", texts.step);
  if (min > max)
    throw InvalidArgument(fmt::format("--min {} is above --max {}", texts.min, texts.max));
  if (texts.factor <= 1) throw InvalidArgument("--factor: must be above 1");
  const auto steps = step > 0 ? static_cast<double>(max - min) / static_cast<double>(step)
                              : std::log(static_cast<double>(max) / static_cast<double>(min)) /
                                    std::log(texts.factor);
  if (steps > 10'000)
    throw InvalidArgument(fmt::format("--{}: more than 10000 sizes", step > 0 ? "step" : "factor"));
  return size_range(min, max, texts.factor, step);
}

void read_sweep(const Texts& texts, Options& options) {
  Sweep& sweep = options.sweep;
  sweep.ops = ops_of(texts.ops);
  sweep.dtypes = values_of(texts.dtypes, kDTypeCount, dtype_from_string);
  sweep.redops = values_of(texts.redops, kReduceOpCount, reduce_op_from_string);
  sweep.places = word<std::vector<Place>>(
      "--place", texts.place,
      {{"out", {Place::out}}, {"in", {Place::in}}, {"both", {Place::out, Place::in}}});
  if (texts.root == "all") {
    options.all_roots = true;
  } else {
    const auto root = must(parse_bytes(texts.root), "--root", texts.root, "a rank, or all");
    if (root > 1'000'000) throw InvalidArgument(fmt::format("--root {}: no such rank", root));
    sweep.roots = {static_cast<int>(root)};
  }
  sweep.sizes = sizes_of(texts);
  sweep.concurrent = texts.concurrent;
  sweep.caches = word<std::vector<Cache>>("--cache", texts.cache,
                                          {{"hot", {Cache::hot}},
                                           {"rotate", {Cache::rotate}},
                                           {"cold", {Cache::cold}},
                                           {"auto", {Cache::hot, Cache::rotate}}});
  if (texts.cache == "auto") sweep.last_level = last_level_bytes();
  if (texts.cache == "cold" && !can_flush())
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
  if (first == std::string::npos || filter.backend.starts_with("raw:")) return filter;
  filter.op = bench_op_from_string(filter.backend.substr(0, first));
  filter.backend.erase(0, first + 1);
  return filter;
}

// Of the backends the base stays, for the others to be compared with.
void read_only(const Texts& texts, Options& options) {
  for (const std::string& item : split(texts.only)) options.only.push_back(filter_of(item));
  if (options.only.empty()) return;
  const std::vector<std::string> before = options.backends;
  for (const CellFilter& filter : options.only)
    if (!before.empty() && std::find(before.begin(), before.end(), filter.backend) == before.end())
      throw InvalidArgument(fmt::format("--only: {} is none of the backends {}", filter.backend,
                                        fmt::join(before, " ")));
  for (std::size_t i = before.size(); i-- > 1;)
    if (std::none_of(options.only.begin(), options.only.end(),
                     [&](const CellFilter& filter) { return filter.backend == before[i]; }))
      options.backends.erase(options.backends.begin() + static_cast<std::ptrdiff_t>(i));
}

void read_protocol(const Texts& texts, Options& options) {
  if (texts.backends.empty() && options.command == Command::run) options.backends = {"native"};
  for (const std::string& name : split(texts.backends)) options.backends.push_back(name);
  keep_first_of_each(options.backends);
  if (options.backends.empty() && !texts.backends.empty())
    throw InvalidArgument("--backends must name at least one backend");
  options.seconds = seconds_of("--time", texts.time);
  options.timeout = seconds_of("--timeout", texts.timeout);
  options.equiv = fraction_of("--equiv", texts.equiv, "a fraction; write 2%");
  if (texts.warmup != "auto") {
    const auto count =
        must(parse_bytes(texts.warmup), "--warmup", texts.warmup, "a count, or auto");
    options.warmup = static_cast<int>(std::min<std::uint64_t>(count, 1'000'000));
  }
  options.random_order =
      word<bool>("--order", texts.order, {{"random", true}, {"alternate", false}});
  options.dirty = word<bool>("--dirty", texts.dirty, {{"on", true}, {"off", false}});
  options.control =
      word<Control>("--control", texts.control,
                    {{"on", Control::on}, {"solo", Control::solo}, {"off", Control::off}});
  options.bind = word<Bind>(
      "--bind", texts.bind,
      {{"auto", Bind::automatic}, {"set", Bind::set}, {"core", Bind::core}, {"none", Bind::none}});
  options.cuda = word<bool>("--device", texts.device, {{"cpu", false}, {"cuda", true}});
  if (texts.graph > 0 && !options.cuda)
    throw InvalidArgument("--graph: CUDA graphs hold ops of a GPU; add --device cuda");
  options.start_skew = must(parse_seconds(texts.start_skew), "--start-skew", texts.start_skew,
                            "a duration; write 50us or 1ms");
  if (options.start_skew < 0 || options.start_skew > 1)
    throw InvalidArgument(
        fmt::format("--start-skew {}: from 0 to 1 s, in every iteration", texts.start_skew));
  options.min_effect = fraction_of("--min-effect", texts.min_effect, "a fraction; write 5%");
  options.heap = word<bool>("--memory", texts.memory, {{"plain", false}, {"heap", true}});
  options.sync =
      word<Sync>("--sync", texts.sync,
                 {{"loop", Sync::loop}, {"window", Sync::window}, {"barrier", Sync::barrier}});
  options.check = word<Check>("--check", texts.check,
                              {{"first", Check::first}, {"all", Check::all}, {"off", Check::off}});
  options.color =
      word<Switch>("--color", texts.color,
                   {{"auto", Switch::automatic}, {"always", Switch::on}, {"never", Switch::off}});
  options.progress =
      word<Switch>("--progress", texts.progress,
                   {{"auto", Switch::automatic}, {"on", Switch::on}, {"off", Switch::off}});
  options.columns = split(texts.columns);
  for (const std::string& column : options.columns) {
    const auto& known = column_facts();
    if (std::none_of(known.begin(), known.end(),
                     [&](const ColumnFacts& facts) { return facts.name == column; }))
      throw InvalidArgument(
          fmt::format("--columns {}: no such column; c10d-bench list columns prints them", column));
  }
}

// One file would overwrite the other at the end.
void refuse_outputs(const Options& options) {
  std::map<std::string, const char*> taken;
  for (const auto& [path, option] :
       {std::pair(options.json, "--json"), std::pair(options.csv, "--csv"),
        std::pair(options.markdown, "--md"), std::pair(options.report, "--report"),
        std::pair(options.svg, "--svg")}) {
    if (path == "-" && path != options.json)
      throw InvalidArgument(fmt::format("{} -: only --json writes to stdout; give a file", option));
    const auto [other, is_new] = taken.emplace(path, option);
    if (!is_new && !path.empty() && !path.starts_with("/dev/"))
      throw InvalidArgument(fmt::format("{} {}: {} writes there too", option, path, other->second));
  }
}

void declare(CLI::App& app, Options& options, Texts& texts) {
  app.add_option("ops", texts.ops, "ops by name, or all (default all_reduce)");
  for (const OptionFacts& facts : option_facts()) {
    const auto add = [&](auto& value) -> CLI::Option* {
      using Value = std::remove_reference_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, bool>) {
        return app.add_flag(facts.names, value, facts.help);
      } else {
        CLI::Option* option = app.add_option(facts.names, value, facts.help);
        if constexpr (std::is_same_v<Value, std::string>)  // of a script's variable that is not set
          option->check([](const std::string& text) { return text.empty() ? "is empty" : ""; });
        if (facts.low < facts.high) option->check(CLI::Range(facts.low, facts.high));
        if (value != Value{}) option->capture_default_str();
        return option;
      }
    };
    std::visit(
        [&](auto member) {
          if constexpr (std::is_invocable_v<decltype(member), Texts&>)
            add(texts.*member)->group(facts.group);
          else
            add(options.*member)->group(facts.group);
        },
        facts.target);
  }
  // Between the controller and the ranks that it starts.
  app.add_option("--worker-launch", options.worker_launch)->group("");
  app.add_option("--worker-results", options.results)->group("");
  app.add_option("--worker-token", options.token_path)->group("");
  app.add_option("--worker-solo", options.solo)->group("");
}

void add_training(CLI::App& app, Options& options) {
  app.add_option("-n,--ranks", options.ranks, "ranks besides a single process (default 2)")
      ->check(CLI::Range(2, 64));
  app.add_option("--model", options.model, "mlp, babycnn or resnet18")
      ->check(CLI::IsMember({"mlp", "babycnn", "resnet18"}))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "samples per rank and step")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "measured steps per launch")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--launches", options.launches, "sets of fresh processes")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--python", options.pythons, "interpreters that have PyTorch")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of the order")->capture_default_str();
}

// Given twice, an option's last value counts, so that a script can be overridden at its end.
void let_last_win(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_expected_max() == 1)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

struct CommandFacts {
  const char* name;
  const char* help;
  Command value;
  const char* example;
};
CLI::App* add_command(CLI::App& app, Options& options, const CommandFacts& facts) {
  CLI::App* sub = app.add_subcommand(facts.name, facts.help);
  sub->footer(fmt::format("Example:\n  c10d-bench {}\n{}", facts.example, kFooter));
  sub->callback([&options, value = facts.value] { options.command = value; });
  return sub;
}

// Commands that start ranks.
void add_measuring(CLI::App& app, Options& options, Texts& texts) {
  const auto command = [&](const char* name, const char* help, Command value, const char* example) {
    return add_command(app, options, {name, help, value, example});
  };
  for (CLI::App* sub :
       {command("compare", "backends side by side: ratio, interval, verdict", Command::compare,
                "compare -n 2 -B native,gloo,mpi all_reduce -b 8 -e 64M -f 8"),
        command("run", "time and bandwidth of each backend", Command::run,
                "run -n 4 all -s 1K,1M --json r.jsonl")}) {
    declare(*sub, options, texts);
    let_last_win(*sub);
  }
  CLI::App* tune = command("tune", "measure native's algorithms here, for its plans", Command::tune,
                           "tune -n 2");
  CLI::App* explain = command("explain", "what native does for a call, and how fast",
                              Command::explain, "explain all_reduce 1M -n 2");
  explain->add_option("op", options.topic, "all_reduce, ...")->required();
  explain->add_option("size", texts.size, "S: 8, 4K, 16M")->required();
  explain->add_option("-d,--dtype", texts.dtypes, "f32, bf16, ...")->capture_default_str();
  explain->add_flag("--heap", options.heap, "of registered memory");
  for (CLI::App* sub : {tune, explain})
    sub->add_option("-n,--ranks", options.ranks, "start N ranks on this host (default 2)")
        ->check(CLI::Range(2, 1024));
  add_training(*command("train", "step time of training, here and under PyTorch", Command::train,
                        "train --model mlp --python /usr/bin/python3"),
               options);
  command("overlap", "what an async all_reduce hides behind computation", Command::overlap,
          "overlap");
}

// Commands of this one process.
void add_looking(CLI::App& app, Options& options, Texts& texts) {
  const auto command = [&](const char* name, const char* help, Command value, const char* example) {
    return add_command(app, options, {name, help, value, example});
  };
  CLI::App* ceiling =
      command("ceiling", "what memory and loopback can do here", Command::ceiling, "ceiling");
  ceiling->add_flag("--json", options.json_listing, "JSON lines");
  CLI::App* store =
      command("store", "operations per second of the store", Command::store, "store --time 1s");
  store->add_flag("--json", options.json_listing, "JSON lines");
  store->add_option("--time", texts.time, "time for one line of the table")->capture_default_str();
  CLI::App* doctor =
      command("doctor", "what this machine offers to a benchmark", Command::doctor, "doctor");
  CLI::Option* check =
      doctor->add_flag("--cross-check", options.cross_check,
                       "hold run's all_reduce against plain loops around the same libraries");
  doctor->add_flag("--json", options.json_listing, "one JSON object")->excludes(check);
  doctor->add_option("--launches", options.launches, "of the cross-check: sets of fresh processes")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  doctor->add_option("--time", texts.time, "of the cross-check: measuring per size and launch")
      ->capture_default_str();
  doctor->add_option("--python", options.pythons, "of the cross-check: with PyTorch")
      ->delimiter(',')
      ->capture_default_str();
  for (const char* of : {"--launches", "--time", "--python"}) doctor->get_option(of)->needs(check);
  CLI::App* list = command("list", "names that options take", Command::list, "list ops");
  list->add_option("topic", options.topic, "ops, backends, dtypes, redops, algos, checks, columns")
      ->required();
  list->add_flag("--json", options.json_listing, "one JSON object");
  CLI::App* report = command("report", "tables of earlier runs, from their JSON lines",
                             Command::report, "report r.jsonl -o r.html");
  report->add_option("files", options.files, "R.jsonl ...")->required();
  report->add_option("-o,--report", options.report, "one HTML file instead");
  report->add_option("--svg", options.svg, "each plot as a file of its own in this folder");
}

void read_texts(const Texts& texts, Options& options) {
  if (options.command != Command::run && options.command != Command::compare) {
    options.seconds = seconds_of("--time", texts.time);
    options.timeout = seconds_of("--timeout", texts.timeout);
    if (options.command != Command::explain) return;
    options.bytes = bytes_of("size", texts.size);
    options.dtype = dtype_from_string(texts.dtypes);
    if (const std::size_t each = size_of(options.dtype);
        options.bytes == 0 || options.bytes % each != 0)
      throw InvalidArgument(fmt::format("size {}: not a whole number of {} elements of {} bytes",
                                        texts.size, texts.dtypes, each));
    return;
  }
  read_sweep(texts, options);
  read_protocol(texts, options);
  read_only(texts, options);
  refuse_outputs(options);
}

}  // namespace

Parsed parse_options(int argc, const char* const* argv) {
  Parsed parsed;
  Options& options = parsed.options;
  Texts texts;
  std::vector<std::string> words;
  CLI::App app("Measures collectives, and compares backends in one run.", "c10d-bench");
  app.set_version_flag("--version", "c10d-bench " + version());
  app.formatter(help_format());  // commands made from here on have it too
  app.require_subcommand(1);
  app.footer(std::string(kExamples) + kFooter + "\nc10d-bench COMMAND --help lists the options.");
  add_measuring(app, options, texts);
  add_looking(app, options, texts);
  try {
    words = words_of(argc, argv);
    options.argv = words;
    options.argv.insert(options.argv.begin(), argv[0]);
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // as CLI11 wants them
    read_texts(texts, options);
  } catch (const CLI::Success& success) {
    parsed.exit_code = app.exit(success);
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = complain(app, words, error);
  } catch (const InvalidArgument& error) {
    std::fprintf(stderr, "c10d-bench: %s\n", error.what());
    parsed.exit_code = 2;
  }
  return parsed;
}

}  // namespace c10d::bench
