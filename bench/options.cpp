// SPDX-License-Identifier: BSD-3-Clause
#include "bench/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <set>

#include "bench/format.h"
#include "bench/table.h"
#include "c10d/error.h"
#include "c10d/version.h"

namespace c10d::bench {
namespace {

constexpr const char* kExamples =
    "Examples:\n  c10d-bench compare -n 2 -B native,gloo,mpi all_reduce -b 8 -e 64M -f 8\n"
    "  c10d-bench run -n 4 all -s 1K,1M\n";
constexpr const char* kExitCodes =
    "Exit codes: 0 ok, 1 a backend failed, 2 usage, 3 wrong data, 5 noisy (--strict), 77 nothing "
    "could run, 124 timeout, 128+n signal.";

// What the command line holds as text before it is checked.
struct Texts {
  std::vector<std::string> ops;
  std::string backends = "native";
  std::string min = "1K", max = "64M", step, sizes, time = "0.3s", timeout = "30s", equiv = "2%";
  double factor = 2;
  std::string dtypes = "f32", redops = "sum", root = "0", place = "out";
  std::string warmup = "auto", order = "random", dirty = "on", sync = "window", check = "first";
  std::string memory = "plain", size;
  std::string columns, color = "auto", progress = "auto", control = "on";
};

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

void read_sweep(const Texts& texts, Options& options) {
  Sweep& sweep = options.sweep;
  for (const std::string& name : texts.ops) {
    if (name == "all") {
      for (const OpFacts& facts : op_facts()) sweep.ops.push_back(facts.op);
    } else {
      for (const std::string& part : split(name)) sweep.ops.push_back(bench_op_from_string(part));
    }
  }
  if (sweep.ops.empty()) sweep.ops.push_back(BenchOp::all_reduce);
  keep_first_of_each(sweep.ops);
  for (const std::string& name : split(texts.dtypes)) {
    if (name == "all") {
      for (int i = 0; i < kDTypeCount; ++i) sweep.dtypes.push_back(static_cast<DType>(i));
    } else {
      sweep.dtypes.push_back(dtype_from_string(name));
    }
  }
  keep_first_of_each(sweep.dtypes);
  for (const std::string& name : split(texts.redops)) {
    if (name == "all") {
      for (int i = 0; i < kReduceOpCount; ++i)
        sweep.redops.push_back(static_cast<ReduceOp::Kind>(i));
    } else {
      sweep.redops.push_back(reduce_op_from_string(name));
    }
  }
  keep_first_of_each(sweep.redops);
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
  if (!texts.sizes.empty()) {
    for (const std::string& size : split(texts.sizes))
      sweep.sizes.push_back(bytes_of("--sizes", size));
  } else {
    const std::uint64_t min = bytes_of("--min", texts.min);
    const std::uint64_t max = bytes_of("--max", texts.max);
    const std::uint64_t step = texts.step.empty() ? 0 : bytes_of("--step", texts.step);
    if (min > max)
      throw InvalidArgument(fmt::format("--min {} is above --max {}", texts.min, texts.max));
    if (texts.factor <= 1) throw InvalidArgument("--factor: must be above 1");
    if (step > 0 && (max - min) / step > 10'000)
      throw InvalidArgument("--step: more than 10000 sizes");
    sweep.sizes = size_range(min, max, texts.factor, step);
  }
  if (sweep.dtypes.empty() || sweep.redops.empty() || sweep.sizes.empty())
    throw InvalidArgument("--dtype, --redop and --sizes must name at least one value each");
}

void read_protocol(const Texts& texts, Options& options) {
  options.backends = split(texts.backends);
  keep_first_of_each(options.backends);
  if (options.backends.empty()) throw InvalidArgument("--backends must name at least one backend");
  options.seconds = seconds_of("--time", texts.time);
  options.timeout = seconds_of("--timeout", texts.timeout);
  options.equiv = must(parse_fraction(texts.equiv), "--equiv", texts.equiv, "a fraction; write 2%");
  if (texts.warmup != "auto") {
    const auto count =
        must(parse_bytes(texts.warmup), "--warmup", texts.warmup, "a count, or auto");
    options.warmup = static_cast<int>(std::min<std::uint64_t>(count, 1'000'000));
  }
  options.random_order =
      word<bool>("--order", texts.order, {{"random", true}, {"alternate", false}});
  options.dirty = word<bool>("--dirty", texts.dirty, {{"on", true}, {"off", false}});
  options.control = word<bool>("--control", texts.control, {{"on", true}, {"off", false}});
  options.heap = word<bool>("--memory", texts.memory, {{"plain", false}, {"heap", true}});
  options.window_sync = word<bool>("--sync", texts.sync, {{"window", true}, {"barrier", false}});
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

void add_measuring(CLI::App& app, Options& options, Texts& texts) {
  app.add_option("ops", texts.ops, "ops by name, or all (default all_reduce)");
  app.add_option("-n,--ranks", options.ranks,
                 "start N ranks on this host (default: one per CPU, from 2 to 8)")
      ->check(CLI::Range(1, 1024));
  app.add_option("-B,--backends,--backend", texts.backends,
                 "native,gloo,mpi,raw:gloo,raw:mpi,memcpy; the first is the base")
      ->capture_default_str();
  app.add_option("-b,--min", texts.min, "smallest S")->capture_default_str();
  app.add_option("-e,--max", texts.max, "largest S")->capture_default_str();
  app.add_option("-f,--factor", texts.factor, "S grows by this factor")->capture_default_str();
  app.add_option("--step", texts.step, "S grows by this many bytes instead");
  app.add_option("-s,--sizes", texts.sizes, "these sizes instead: 8,4K,16M");
  app.add_option("-d,--dtype", texts.dtypes, "f32,bf16,... or all")->capture_default_str();
  app.add_option("-o,--redop", texts.redops, "sum,max,... or all")->capture_default_str();
  app.add_option("-r,--root", texts.root, "a rank, or all")->capture_default_str();
  app.add_option("--place", texts.place, "out, in or both")->capture_default_str();
  app.add_option("--window", options.window, "messages in flight of isend")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--time", texts.time, "time for one cell in one launch")->capture_default_str();
  app.add_option("-i,--iters", options.iters, "iterations per block instead of --time")
      ->check(CLI::Range(1, 20000));
  app.add_option("-w,--warmup", texts.warmup, "iterations before a cell, or auto")
      ->capture_default_str();
  app.add_option("--blocks", options.blocks, "blocks per cell and launch")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--launches", options.launches, "sets of fresh processes")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--order", texts.order, "of backends in a block: random or alternate")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of order and data")->capture_default_str();
  app.add_option("--dirty", texts.dirty, "rewrite the input before each iteration: on, off")
      ->capture_default_str();
  app.add_option("--memory", texts.memory,
                 "plain, or heap: registered with the first backend that can")
      ->capture_default_str();
  app.add_option("--sync", texts.sync, "window (agreed start time) or barrier")
      ->capture_default_str();
  app.add_option("-c,--check", texts.check, "first and last block, all, or off")
      ->capture_default_str();
  app.add_option("--control", texts.control, "measure the base against itself: on, off")
      ->capture_default_str();
  app.add_flag("--strict", options.strict, "exit 5 when the run is noisy");
  app.add_option("--timeout", texts.timeout, "deadline of one operation")->capture_default_str();
  app.add_option("--equiv", texts.equiv, "ratios this near to 1 are the same")
      ->capture_default_str();
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

void add_output(CLI::App& app, Options& options, Texts& texts) {
  app.add_option("--json", options.json,
                 "JSON lines to this file; - is stdout, the table moves to stderr");
  app.add_option("--csv", options.csv, "one row per block to this file");
  app.add_option("--md", options.markdown, "the printed tables as Markdown to this file");
  app.add_option("--report", options.report, "one HTML file with tables and plots");
  app.add_flag("--raw", options.raw, "keep every sample in --json");
  app.add_option("--columns", texts.columns, "columns of the table: see list columns");
  app.add_flag("-q,--quiet", options.quiet, "tables only");
  app.add_flag("-v,--verbose", options.verbose, "say more on stderr");
  app.add_option("--color", texts.color, "auto, always, never")->capture_default_str();
  app.add_option("--progress", texts.progress, "auto, on, off")->capture_default_str();
  app.add_flag("--dry-run", options.dry_run, "print the plan, start nothing");
  // Between the controller and the ranks that it starts.
  app.add_option("--worker-launch", options.worker_launch)->group("");
  app.add_option("--worker-results", options.results)->group("");
  app.add_option("--worker-token", options.token_path)->group("");
}

void read_texts(const Texts& texts, Options& options) {
  if (options.command != Command::run && options.command != Command::compare) {
    options.timeout = seconds_of("--timeout", texts.timeout);
    if (options.command != Command::explain) return;
    options.bytes = bytes_of("size", texts.size);
    options.dtype = dtype_from_string(texts.dtypes);
    return;
  }
  read_sweep(texts, options);
  read_protocol(texts, options);
}

// Given twice, an option's last value counts, so that a script can be overridden at its end.
void let_last_win(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_expected_max() == 1)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

// Both spellings of long options are taken: --dry_run is --dry-run.
std::vector<std::string> normalised(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const std::size_t end = std::min(argument.find('='), argument.size());
    std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  return arguments;
}

}  // namespace

Parsed parse_options(int argc, const char* const* argv) {
  Parsed parsed;
  Options& options = parsed.options;
  options.argv.assign(argv, argv + argc);
  Texts texts;
  CLI::App app("Measures collectives, and compares backends in one run.", "c10d-bench");
  app.set_version_flag("--version", "c10d-bench " + version());
  app.require_subcommand(1);
  app.footer(std::string(kExamples) + kExitCodes +
             "\nc10d-bench COMMAND --help lists the options.");
  const auto command = [&](const char* name, const char* help, Command value,
                           const std::string& example) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->footer("Example:\n  c10d-bench " + example + "\n" + kExitCodes);
    sub->callback([&options, value] { options.command = value; });
    return sub;
  };
  for (CLI::App* sub :
       {command("compare", "backends side by side: ratio, interval, verdict", Command::compare,
                "compare -n 2 -B native,gloo,mpi all_reduce -b 8 -e 64M -f 8 --report r.html"),
        command("run", "time and bandwidth of each backend", Command::run,
                "run -n 4 all -s 1K,1M --json r.jsonl")}) {
    add_measuring(*sub, options, texts);
    add_output(*sub, options, texts);
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
  CLI::App* ceiling =
      command("ceiling", "what memory and loopback can do here", Command::ceiling, "ceiling");
  ceiling->add_flag("--json", options.json_listing, "JSON lines");
  CLI::App* store =
      command("store", "operations per second of the store", Command::store, "store --time 1");
  store->add_flag("--json", options.json_listing, "JSON lines");
  store->add_option("--time", options.seconds, "seconds per line")->capture_default_str();
  add_training(*command("train", "step time of the reference models here and under PyTorch",
                        Command::train, "train --model mlp --python /usr/bin/python3"),
               options);
  command("overlap", "what an async all_reduce hides behind computation", Command::overlap,
          "overlap");
  CLI::App* doctor =
      command("doctor", "what this machine offers to a benchmark", Command::doctor, "doctor");
  doctor->add_flag("--json", options.json_listing, "one JSON object");
  CLI::App* list = command("list", "names that options take", Command::list, "list ops");
  list->add_option("topic", options.topic, "ops, backends, dtypes, redops, columns")->required();
  list->add_flag("--json", options.json_listing, "one JSON object");
  CLI::App* report = command("report", "JSON lines of earlier runs to one HTML file",
                             Command::report, "report r.jsonl -o r.html");
  report->add_option("files", options.files, "R.jsonl ...")->required();
  report->add_option("-o,--report", options.report, "the HTML file")->required();
  try {
    app.parse(normalised(argc, argv));
    read_texts(texts, options);
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = app.exit(error) == 0 ? 0 : 2;
  } catch (const InvalidArgument& error) {
    std::fprintf(stderr, "c10d-bench: %s\n", error.what());
    parsed.exit_code = 2;
  }
  return parsed;
}

std::vector<Case> cases_of(const Options& options, int ranks) {
  Sweep sweep = options.sweep;
  if (options.all_roots)
    for (int root = 0; root < ranks; ++root) sweep.roots.push_back(root);
  if (!sweep.roots.empty() && sweep.roots.front() >= ranks)
    throw InvalidArgument(fmt::format("--root {}: there are {} ranks", sweep.roots.front(), ranks));
  return expand(sweep, ranks);
}

}  // namespace c10d::bench
