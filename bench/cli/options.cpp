// SPDX-License-Identifier: BSD-3-Clause
#include "bench/cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <type_traits>
#include <utility>
#include <variant>

#include "bench/cli/arguments.h"
#include "bench/cli/help.h"
#include "bench/cli/option_table.h"
#include "bench/cli/other_spellings.h"
#include "bench/cli/read_run.h"
#include "bench/cli/values.h"
#include "bench/commands/doctor.h"
#include "bench/commands/list.h"
#include "bench/commands/overlap.h"
#include "bench/commands/store.h"
#include "bench/commands/tune.h"
#include "bench/report/html.h"
#include "bench/run/controller.h"
#include "bench/run/roofline.h"
#include "c10d/capability.h"
#include "c10d/error.h"
#include "tools/manual/manual.h"

namespace c10d::bench {
namespace {

constexpr const char* kExamples =
    "Examples:\n  c10d-bench compare -n 2 -B native,gloo,mpi all_reduce -b 8 -e 64M -f 8\n"
    "  c10d-bench run -n 4 all -s 1K,1M\n";
constexpr const char* kFooter =
    "Values in brackets are the defaults.\n"
    "Exit codes: 0 ok, 1 backend failed or row out of bounds, 2 usage, 3 wrong data,\n"
    "5 a warning (--strict), 77 nothing could run, 124 timeout, 128+n signal.";

// Their descriptions would stand beside the value's name.
CLI::Validator in_range(int low, int high) { return CLI::Range(low, high).description(""); }

// Every name that an op can have on the command line, for the completion.
std::string op_choices() {
  std::string choices = "all";
  for (const OpFacts& facts : op_facts()) choices += fmt::format("|{}", facts.name);
  return choices;
}

void declare(CLI::App& app, RunOptions& options, RawOptions& raw) {
  app.add_option("ops", raw.ops, "ops by name, or all (default all_reduce)")
      ->type_name(op_choices());
  for (const OptionFacts& facts : option_facts(raw, options)) {
    const auto add = [&](auto& value) -> CLI::Option* {
      using Value = std::remove_reference_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, bool>) {
        return app.add_flag(facts.names, value, facts.help);
      } else {
        CLI::Option* option =
            app.add_option(facts.names, value, facts.help)->type_name(facts.value_name);
        if constexpr (std::is_same_v<Value, std::string>)  // of a script's variable that is not set
          option->check([](const std::string& text) { return text.empty() ? "is empty" : ""; });
        if (facts.low < facts.high) option->check(in_range(facts.low, facts.high));
        if constexpr (std::is_same_v<Value, std::vector<std::string>>)
          option->allow_extra_args(false);
        else if (value != Value{})
          option->capture_default_str();
        return option;
      }
    };
    std::visit([&](auto* value) { add(*value)->group(facts.group); }, facts.value);
  }
  // Between the controller and the ranks that it starts.
  app.add_option("--worker-launch", options.worker.launch)->group("");
  app.add_option("--worker-results", options.worker.results)->group("");
  app.add_option("--worker-token", options.worker.token_path)->group("");
  app.add_option("--worker-solo", options.worker.solo)->group("");
}

void add_training(CLI::App& app, TrainOptions& options) {
  app.add_option("-n,--ranks", options.ranks, "ranks, measured beside one process (default 2)")
      ->type_name("N")
      ->check(in_range(2, 64));
  app.add_option("--model", options.model, "what is trained")
      ->type_name("mlp|babycnn|resnet18")
      ->check(CLI::IsMember({"mlp", "babycnn", "resnet18"}).description(""))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "samples per rank and step")
      ->type_name("N")
      ->check(in_range(1, 100'000))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "measured steps per launch")
      ->type_name("N")
      ->check(in_range(1, 100'000))
      ->capture_default_str();
  app.add_option("--launches", options.launches, "sets of fresh processes")
      ->type_name("N")
      ->check(in_range(1, 1000))
      ->capture_default_str();
  app.add_option("--python", options.pythons, "interpreters that have PyTorch")
      ->type_name("FILE,..")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of the order")->type_name("N")->capture_default_str();
}

void add_replay(CLI::App& app, ReplayCommand& options, RawOptions& raw) {
  app.add_option("record", options.source,
                 "a process id of the job or of its launcher; a file that c10d-info --pid PID "
                 "--json --last 1024 wrote; or a folder C10D_RECORD_DIR")
      ->type_name("PID|FILE|DIR")
      ->required();
  app.add_option("-B,--backends", options.how.backends, "native,gloo,mpi (default: all there are)")
      ->type_name("NAME,..")
      ->delimiter(',');
  app.add_flag("--list", options.only_list, "print the ops and their times, run nothing");
  app.add_option("--steps", options.how.steps, "run the last N steps of the record")
      ->type_name("N")
      ->check(in_range(1, 100'000))
      ->capture_default_str();
  app.add_option("--ops-per-step", options.how.ops_per_step,
                 "number of ops of a step, if it is detected wrongly")
      ->type_name("N")
      ->check(in_range(1, 100'000));
  app.add_option("--compute", options.compute,
                 "what ranks do between ops as long as the job did: gaps: the caller computes; "
                 "sleep: it sleeps, as the reducer of DDP does while backward computes; beside: it "
                 "sleeps, and a thread computes all the time")
      ->type_name("gaps|sleep|beside")
      ->check(CLI::IsMember({"gaps", "sleep", "beside"}).description(""))
      ->capture_default_str();
  app.add_option("--compute-time", raw.compute_time,
                 "of --compute beside: how long that thread computes in each step, by the CPU time "
                 "that it gets: 55ms (default: all the time)")
      ->type_name("TIME");
  app.add_flag("--no-gaps", options.no_gaps, "ops follow each other without a pause");
  app.add_option("--memory", options.memory,
                 "plain, or heap: from allocate(), as in c10d's trainers")
      ->type_name("plain|heap")
      ->check(CLI::IsMember({"plain", "heap"}).description(""))
      ->capture_default_str();
  app.add_option("--place", options.place, "in: in place, where an op can be; or out")
      ->type_name("in|out")
      ->check(CLI::IsMember({"in", "out"}).description(""))
      ->capture_default_str();
  app.add_option("--blocks", options.how.blocks, "turns of each backend in a launch")
      ->type_name("N")
      ->check(in_range(1, 1000))
      ->capture_default_str();
  app.add_option("--launches", options.launches, "sets of fresh processes")
      ->type_name("N")
      ->check(in_range(1, 1000))
      ->capture_default_str();
  app.add_option("--timeout", raw.timeout, "deadline of one operation")
      ->type_name("TIME")
      ->capture_default_str();
  app.add_option("--seed", options.how.seed, "of the order and of the data")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--json", options.json, "JSON lines to this file; - is stdout")->type_name("FILE");
  app.add_option("--worker-launch", options.worker_launch)->group("");
  app.add_option("--worker-record", options.worker_record)->group("");
  app.add_option("--worker-results", options.worker_results)->group("");
  app.add_option("--worker-token", options.how.token_path)->group("");
}

// Given twice, an option's last value counts, so that a script can be overridden at its end.
void let_last_win(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_expected_max() == 1)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

using Run = int (*)(const Options&);

CLI::App* add_command(CLI::App& app, Options& options, const char* name, const char* help,
                      const char* example, Run run) {
  CLI::App* sub = app.add_subcommand(name, help);
  sub->footer(fmt::format("Example:\n  c10d-bench {}\n{}", example, kFooter));
  sub->callback([&options, run] { options.command = run; });
  return sub;
}

// Commands that start ranks.
void add_measuring(CLI::App& app, Options& options, RawOptions& raw) {
  const auto command = [&](const char* name, const char* help, const char* example, Run run) {
    return add_command(app, options, name, help, example, run);
  };
  for (CLI::App* sub :
       {command("compare", "backends side by side: ratio, interval, verdict",
                "compare -n 2 -B native,gloo,mpi all_reduce -b 8 -e 64M -f 8",
                [](const Options& o) { return run_benchmark(o.run); }),
        command("run", "time and bandwidth of each backend", "run -n 4 all -s 1K,1M --json r.jsonl",
                [](const Options& o) { return run_benchmark(o.run); })}) {
    declare(*sub, options.run, raw);
    let_last_win(*sub);
  }
  CLI::App* tune = command("tune", "measure native's algorithms here, for its plans", "tune -n 2",
                           [](const Options& o) { return run_tune(o.tune_ranks, o.argv); });
  CLI::App* explain =
      command("explain", "what native does for a call, and how fast", "explain all_reduce 1M -n 2",
              [](const Options& o) { return run_explain(o.explain, o.argv); });
  explain->add_option("op", options.explain.op, "all_reduce, ..")
      ->required()
      ->type_name(op_choices());
  explain->add_option("size", raw.size, "S: 8, 4K, 16M")->required();
  explain->add_option("-d,--dtype", raw.dtypes, "f32, bf16, ..")
      ->type_name("NAME")
      ->capture_default_str();
  explain->add_flag("--heap", options.explain.registered, "of registered memory");
  for (const auto& [sub, ranks] :
       {std::pair(tune, &options.tune_ranks), std::pair(explain, &options.explain.ranks)})
    sub->add_option("-n,--ranks", *ranks, "start N ranks on this host (default 2)")
        ->type_name("N")
        ->check(in_range(2, 1024));
  add_training(*command("train", "step time of training, here and under PyTorch",
                        "train --model mlp --python /usr/bin/python3",
                        [](const Options& o) { return compare_training(o.train); }),
               options.train);
  add_replay(*command("replay", "the ops that a job recorded, on each backend",
                      "replay 4711 --list\n  c10d-bench replay resnet18.json -B native,gloo",
                      [](const Options& o) { return run_replay(o.replay, o.argv); }),
             options.replay, raw);
  command("overlap", "what an async all_reduce hides behind computation", "overlap",
          [](const Options& o) { return run_overlap(o.argv); });
}

void add_doctor(CLI::App& app, Options& options, RawOptions& raw) {
  CLI::App* doctor = add_command(app, options, "doctor", "what this machine offers to a benchmark",
                                 "doctor", [](const Options& o) {
                                   return o.is_cross_check ? run_cross_check(o.cross_check)
                                                           : print_doctor(o.as_json);
                                 });
  CLI::Option* check =
      doctor->add_flag("--cross-check", options.is_cross_check,
                       "hold run's all_reduce against plain loops around the same libraries");
  doctor->add_flag("--json", options.as_json, "one JSON object")->excludes(check);
  doctor
      ->add_option("--launches", options.cross_check.launches,
                   "of the cross-check: sets of fresh processes")
      ->type_name("N")
      ->check(in_range(1, 1000))
      ->capture_default_str();
  doctor->add_option("--time", raw.time, "of the cross-check: measuring per size and launch")
      ->type_name("TIME")
      ->capture_default_str();
  doctor->add_option("--python", options.cross_check.pythons, "of the cross-check: with PyTorch")
      ->type_name("FILE,..")
      ->delimiter(',')
      ->capture_default_str();
  doctor
      ->add_option("--mpi", options.cross_check.mpis,
                   "of the cross-check: more MPIs: openmpi, mpich, or a path as behind mpi@")
      ->type_name("WHICH,..")
      ->delimiter(',');
  doctor
      ->add_option("--sync", raw.sync,
                   "of the cross-check: loop, or own: each op after a barrier of its library")
      ->type_name("loop|own")
      ->check(CLI::IsMember({"loop", "own"}));
  doctor
      ->add_option("--device", raw.device,
                   "of the cross-check: cuda: nccl, against PyTorch's loop torch:nccl")
      ->type_name("cpu|cuda")
      ->capture_default_str();
  for (const char* of : {"--launches", "--time", "--python", "--mpi", "--sync", "--device"})
    doctor->get_option(of)->needs(check);
}

// Commands of this one process.
void add_looking(CLI::App& app, Options& options, RawOptions& raw) {
  const auto command = [&](const char* name, const char* help, const char* example, Run run) {
    return add_command(app, options, name, help, example, run);
  };
  CLI::App* ceiling = command("ceiling", "what memory and loopback can do here", "ceiling",
                              [](const Options& o) { return print_ceilings(o.as_json); });
  ceiling->add_flag("--json", options.as_json, "JSON lines");
  CLI::App* store =
      command("store", "operations per second of the store", "store --time 1s",
              [](const Options& o) { return run_store_bench(o.store_seconds, o.as_json); });
  store->add_flag("--json", options.as_json, "JSON lines");
  store->add_option("--time", raw.time, "time for one line of the table")
      ->type_name("TIME")
      ->capture_default_str();
  add_doctor(app, options, raw);
  CLI::App* list = command("list", "names that options take", "list ops",
                           [](const Options& o) { return print_list(o.list_topic, o.as_json); });
  list->add_option("topic", options.list_topic,
                   "ops, backends, dtypes, redops, algos, checks, columns")
      ->required()
      ->type_name("ops|backends|dtypes|redops|algos|checks|columns");
  list->add_flag("--json", options.as_json, "one JSON object");
  CLI::App* diff = command("diff", "cells that differ between two earlier runs",
                           "diff old.jsonl new.jsonl --fail-above 10%",
                           [](const Options& o) { return print_diff(o.diff); });
  diff->add_option("old", options.diff.old_file, "OLD.jsonl")->required();
  diff->add_option("new", options.diff.new_file, "NEW.jsonl")->required();
  diff->add_option("--fail-above", raw.fail_above,
                   "exit with 1 if a cell is slower by more than this: 10%, 0.1")
      ->type_name("PERCENT");
  CLI::App* report =
      command("report", "tables of an earlier run, from its JSON lines", "report r.jsonl -o r.html",
              [](const Options& o) {
                return write_report(o.report.files, o.report.html, o.report.svg, o.report.verbose);
              });
  report->add_option("files", options.report.files, "R.jsonl ...")->required();
  report->add_option("-o,--report", options.report.html, "one HTML file instead")
      ->type_name("FILE");
  report->add_option("--svg", options.report.svg, "each plot as a file of its own in this folder")
      ->type_name("DIR");
  report->add_flag("-v,--verbose", options.report.verbose, "more than tables and warnings");
}

void read_explain(const RawOptions& raw, ExplainOptions& explain) {
  explain.bytes = bytes_of("size", raw.size);
  explain.dtype = dtype_of(raw.dtypes);
  if (const std::size_t each = size_of(explain.dtype); explain.bytes % each != 0)
    throw InvalidArgument(fmt::format("size {}: not a whole number of {} elements of {} bytes",
                                      raw.size, raw.dtypes, each));
}

// Of run and compare, --help shows what most people need, in one group.
void hide_rare_options(CLI::App& app) {
  RawOptions raw;
  RunOptions options;
  for (CLI::App* command : app.get_subcommands([](const CLI::App* one) {
         return one->get_name() == "run" || one->get_name() == "compare";
       }))
    for (const OptionFacts& facts : option_facts(raw, options))
      command->get_option(split(facts.names).back())->group(facts.usual ? "Options" : "");
}

}  // namespace

Parsed parse_options(int argc, const char* const* argv) {
  Parsed parsed;
  Options& options = parsed.options;
  RawOptions raw;
  std::vector<std::string> arguments;
  CLI::App app("Measures collectives, and compares backends in one run.", "c10d-bench");
  app.set_version_flag("--version", "c10d-bench " + version());
  app.formatter(help_format());  // commands made from here on have it too
  app.set_help_flag("-h,--help", "the options that most people need");
  app.set_help_all_flag("--help-all", "all options");
  app.require_subcommand(1);
  app.footer(std::string(kExamples) + kFooter + "\nc10d-bench COMMAND --help lists the options.");
  add_measuring(app, options, raw);
  add_looking(app, options, raw);
  if (const auto manual = manual_of(app, argc, argv)) {
    std::fputs(manual->c_str(), stdout);
    parsed.exit_code = 0;
    return parsed;
  }
  try {
    arguments = arguments_of(argc, argv);
    options.argv = arguments;
    options.argv.insert(options.argv.begin(), argv[0]);
    app.parse(
        std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // as CLI11 wants them
    options.run.argv = options.argv;
    options.run.set_arguments = arguments_of_a_set(arguments);
    options.run.compare = app.got_subcommand("compare");
    if (options.run.compare || app.got_subcommand("run")) read_run(raw, options.run);
    options.replay.how.timeout = seconds_of("--timeout", raw.timeout);
    if (!raw.compute_time.empty())
      options.replay.how.compute_seconds = seconds_of("--compute-time", raw.compute_time);
    if (app.got_subcommand("explain")) read_explain(raw, options.explain);
    if (!raw.fail_above.empty())
      options.diff.fail_above =
          fraction_of("--fail-above", raw.fail_above, "a fraction; write 10%");
    options.cross_check.cuda = is_cuda(raw);
    options.cross_check.sync = raw.sync == "own" ? Sync::own : Sync::loop;
    options.store_seconds = options.cross_check.seconds = seconds_of("--time", raw.time);
  } catch (const CLI::CallForHelp& help) {
    hide_rare_options(app);
    parsed.exit_code = app.exit(help);
  } catch (const CLI::Success& success) {
    parsed.exit_code = app.exit(success);
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = report_parse_error(app, arguments, error);
  } catch (const InvalidArgument& error) {
    std::fprintf(stderr, "c10d-bench: %s\n", error.what());
    parsed.exit_code = 2;
  }
  return parsed;
}

}  // namespace c10d::bench
