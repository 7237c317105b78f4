// SPDX-License-Identifier: BSD-3-Clause
#include "bench/cli/option_table.h"

namespace c10d::bench {
namespace {

constexpr const char* kRanks = "Ranks";
constexpr const char* kWhat = "What is measured";
constexpr const char* kTime = "Duration and order";
constexpr const char* kState = "Caches, memory, start of an op";
constexpr const char* kCheck = "Checks and verdicts";
constexpr const char* kOutput = "Output";
constexpr const char* kAgain = "Plan only, or repeat";
constexpr bool kUsual = true, kRare = false;

std::vector<OptionFacts> what_to_measure(RawOptions& raw, RunOptions& options) {
  return {
      {"-n,--ranks", "N", kUsual, kRanks, "ranks here (default: a CPU or GPU each, up to 8)",
       &options.placement.ranks, 1, 1024},
      {"--oversubscribe", "", kRare, kRanks, "allow more than four ranks per CPU",
       &options.placement.oversubscribe},
      {"--bind", "auto|set|core|none", kRare, kRanks,
       "CPUs of each rank: set (at least two of its own), core (one), none, or auto: set if there "
       "are enough and no launcher has bound the ranks",
       &raw.bind},
      {"--device", "cpu|cuda", kUsual, kRanks, "cuda: buffers on GPUs, for nccl,raw:nccl",
       &raw.device},
      {"-G,--graph-ops", "N", kUsual, kRanks, "with --device cuda: ops of one CUDA graph",
       &options.measurement.graph_ops, 1, 1000},

      {"-B,--backends", "NAME,..", kUsual, kWhat,
       "native,gloo,mpi,raw:gloo,raw:mpi,raw:tcp,memcpy, torch:gloo,torch:c10d; first: the base "
       "(default: run native, compare all here); mpi@mpich, mpi@PATH, torch:gloo@PYTHON",
       &raw.backends},
      {"--against", "PATH|self", kRare, kWhat,
       "compare each backend with the same one of another build, in turns: a c10d-bench, a build "
       "folder, or self",
       &raw.against},
      {"--env", "A:NAME=VALUE", kRare, kWhat,
       "variable of this build or the other: A:NAME=VALUE, B:NAME=VALUE", &raw.side_variables},
      {"-b,--min", "SIZE", kUsual, kWhat, "smallest S", &raw.min},
      {"-e,--max", "SIZE", kUsual, kWhat, "largest S", &raw.max},
      {"-f,--factor", "X", kUsual, kWhat, "S grows by this factor", &raw.factor},
      {"--step", "SIZE", kRare, kWhat, "S grows by this many bytes instead", &raw.step},
      {"-s,--sizes", "SIZE,..", kUsual, kWhat, "these sizes instead: 8,4K,16M", &raw.sizes},
      {"-d,--dtype", "NAME,..", kUsual, kWhat, "f32,bf16,.. or all", &raw.dtypes},
      {"-o,--redop", "NAME,..", kUsual, kWhat, "sum,max,.. or all", &raw.redops},
      {"-r,--root", "RANK", kRare, kWhat, "root of broadcast, reduce, ..: a rank, or all",
       &raw.root},
      {"--place", "out|in|both", kRare, kWhat, "out of place, in place, or both", &raw.place},
      {"--algo", "NAME", kRare, kWhat,
       "native runs this, e.g. two_shot or pull/streaming: see list algos", &options.backends.algo},
      {"--window", "N", kRare, kWhat, "messages in flight of isend", &options.cases.window, 1,
       1024},
      {"--concurrent", "N", kRare, kWhat,
       "N collectives at once, each on a group and buffers of its own",
       &options.cases.sweep.concurrent, 1, 64},
  };
}

std::vector<OptionFacts> how_to_measure(RawOptions& raw, RunOptions& options) {
  return {
      {"--time", "TIME", kUsual, kTime, "time for one cell in one launch", &raw.time},
      {"-i,--iters", "N", kUsual, kTime, "iterations per block instead of --time",
       &options.measurement.iters, 1, 20000},
      {"-w,--warmup", "N", kRare, kTime, "iterations before a cell, or auto", &raw.warmup},
      {"--blocks", "N", kRare, kTime, "blocks per cell and launch", &options.measurement.blocks, 1,
       1000},
      {"--launches", "N", kUsual, kTime, "sets of fresh processes (default 3; 10 in turns)",
       &options.launches, 1, 1000},
      {"--order", "random|alternate", kRare, kTime, "order of the backends in a block", &raw.order},
      {"--seed", "N", kRare, kTime, "seed of the order and of the data", &options.measurement.seed},

      {"--cache", "hot|rotate|cold|auto", kRare, kState,
       "hot: the same buffers again; rotate: others each time, in turns larger than the caches; "
       "cold: flushed; auto: hot, and rotate where S fits into the last-level cache (default: hot; "
       "rotate with --device cuda)",
       &raw.cache},
      {"--dirty", "on|off", kRare, kState, "rewrite the input before each iteration", &raw.dirty},
      {"--memory", "plain|heap", kRare, kState,
       "plain, or heap: registered with the first backend that can; on a GPU, each with its own",
       &raw.memory},
      {"--sync", "loop|window|barrier|own", kRare, kState,
       "loop: ops follow each other, as in a program; window: each op alone, at an agreed start "
       "time; barrier: each op alone, after a sleep; own: each op after a barrier of its backend, "
       "as OSU and IMB measure",
       &raw.sync},
      {"--busy", "N", kRare, kState,
       "N processes of normal priority compute beside the ranks, as another job would",
       &options.measurement.busy, 0, 1024},
      {"--start-skew", "TIME", kRare, kState, "ranks start late by up to this, at random: 50us",
       &raw.start_skew},

      {"-c,--check", "first|all|off", kUsual, kCheck, "first and last block, all, or off",
       &raw.check},
      {"--control", "on|solo|off", kRare, kCheck,
       "on: the base against itself; solo: also each backend in processes of its own; off",
       &raw.control},
      {"--equiv", "PERCENT", kRare, kCheck, "ratios this close to 1 count as equal", &raw.equiv},
      {"--min-effect", "PERCENT", kRare, kCheck,
       "warn if the controls cannot detect a difference of this size", &raw.min_effect},
      {"--strict", "", kRare, kCheck, "exit 5 if there was a warning", &options.verdicts.strict},
      {"--timeout", "TIME", kRare, kCheck, "deadline of one operation", &raw.timeout},
  };
}

std::vector<OptionFacts> what_to_write(RawOptions& raw, RunOptions& options) {
  return {
      {"--json", "FILE", kUsual, kOutput,
       "JSON lines to this file; - is stdout, the table moves to stderr", &options.output.json},
      {"--csv", "FILE", kRare, kOutput, "one row per block to this file", &options.output.csv},
      {"--md", "FILE", kRare, kOutput, "the printed tables as Markdown to this file",
       &options.output.markdown},
      {"--report", "FILE", kUsual, kOutput, "one HTML file with tables and plots",
       &options.output.report},
      {"--svg", "DIR", kRare, kOutput, "each plot as a file of its own in this folder",
       &options.output.svg},
      {"--raw", "", kRare, kOutput, "keep every sample in --json", &options.output.raw},
      {"--columns", "NAME,..", kRare, kOutput, "columns of the table: see list columns",
       &raw.columns},
      {"-q,--quiet", "", kUsual, kOutput, "tables only", &options.output.quiet},
      {"-v,--verbose", "", kUsual, kOutput,
       "more than tables and warnings: libraries, upper bounds, checks, controls, fits; on stderr "
       "a "
       "line for every block",
       &options.output.verbose},
      {"--color", "auto|always|never", kRare, kOutput, "colours in the tables", &raw.color},
      {"--progress", "auto|on|off", kRare, kOutput, "a line that says how far the run is",
       &raw.progress},

      {"--dry-run", "", kRare, kAgain, "print the plan, start nothing", &options.dry_run},
      {"--replay", "FILE", kRare, kAgain,
       "repeat the run of this --json file; options and ops given beside it take precedence",
       &raw.replay},
      {"--only", "CELL,..", kRare, kAgain,
       "measure only these cells, and the base: mpi:16M, all_reduce:mpi:16M", &raw.only},
  };
}

}  // namespace

std::vector<OptionFacts> option_facts(RawOptions& raw, RunOptions& options) {
  std::vector<OptionFacts> facts = what_to_measure(raw, options);
  for (const auto& part : {how_to_measure(raw, options), what_to_write(raw, options)})
    facts.insert(facts.end(), part.begin(), part.end());
  return facts;
}

}  // namespace c10d::bench
