// SPDX-License-Identifier: BSD-3-Clause
#include "bench/cli/option_table.h"

namespace c10d::bench {
namespace {

constexpr const char* kRanks = "Ranks";
constexpr const char* kWhat = "What is measured";
constexpr const char* kTime = "For how long, in which order";
constexpr const char* kState = "In which state";
constexpr const char* kCheck = "Checks and verdicts";
constexpr const char* kOutput = "Output";
constexpr const char* kAgain = "Once more";

std::vector<OptionFacts> what_to_measure() {
  return {
      {"-n,--ranks", kRanks, "start N ranks on this host (default: one per CPU, from 2 to 8)",
       &Options::ranks, 1, 1024},
      {"--bind", kRanks,
       "CPUs of a rank: set (a share of at least two), core (one), none, or auto: set where there "
       "are enough and no launcher has bound",
       &Texts::bind},
      {"--device", kRanks, "cpu or cuda", &Texts::device},

      {"-B,--backends,--backend", kWhat,
       "native,gloo,mpi,raw:gloo,raw:mpi,memcpy; the first is the base (default: run native, "
       "compare all that are here)",
       &Texts::backends},
      {"-b,--min", kWhat, "smallest S", &Texts::min},
      {"-e,--max", kWhat, "largest S", &Texts::max},
      {"-f,--factor", kWhat, "S grows by this factor", &Texts::factor},
      {"--step", kWhat, "S grows by this many bytes instead", &Texts::step},
      {"-s,--sizes", kWhat, "these sizes instead: 8,4K,16M", &Texts::sizes},
      {"-d,--dtype", kWhat, "f32,bf16,... or all", &Texts::dtypes},
      {"-o,--redop", kWhat, "sum,max,... or all", &Texts::redops},
      {"-r,--root", kWhat, "a rank, or all", &Texts::root},
      {"--place", kWhat, "out, in or both", &Texts::place},
      {"--algo", kWhat, "native runs this, e.g. two_shot or pull/streaming: see list algos",
       &Options::algo},
      {"--window", kWhat, "messages in flight of isend", &Options::window, 1, 1024},
      {"--concurrent", kWhat, "N collectives at once, each on a group and buffers of its own",
       &Texts::concurrent, 1, 64},
  };
}

std::vector<OptionFacts> how_to_measure() {
  return {
      {"--time", kTime, "time for one cell in one launch", &Texts::time},
      {"-i,--iters", kTime, "iterations per block instead of --time", &Options::iters, 1, 20000},
      {"-w,--warmup", kTime, "iterations before a cell, or auto", &Texts::warmup},
      {"--blocks", kTime, "blocks per cell and launch", &Options::blocks, 1, 1000},
      {"--launches", kTime, "sets of fresh processes", &Options::launches, 1, 1000},
      {"--order", kTime, "of backends in a block: random or alternate", &Texts::order},
      {"--seed", kTime, "of order and data", &Options::seed},

      {"--cache", kState,
       "hot: the same buffers again; rotate: others each time, in turns larger than the caches; "
       "cold: flushed; auto: hot, and rotate where S fits into the last-level cache",
       &Texts::cache},
      {"--dirty", kState, "rewrite the input before each iteration: on, off", &Texts::dirty},
      {"--memory", kState, "plain, or heap: registered with the first backend that can",
       &Texts::memory},
      {"--sync", kState,
       "loop: ops follow each other, as in a program; window: each op alone, at an agreed start "
       "time; barrier: each op alone, after a sleep",
       &Texts::sync},
      {"--start-skew", kState, "ranks start late by up to this, at random: 50us",
       &Texts::start_skew},
      {"-G,--graph", kState, "N ops per CUDA graph; needs --device cuda", &Texts::graph, 1, 10000},

      {"-c,--check", kCheck, "first and last block, all, or off", &Texts::check},
      {"--control", kCheck,
       "on: the base against itself; solo: also each backend in processes of its own; off",
       &Texts::control},
      {"--equiv", kCheck, "ratios this near to 1 are the same", &Texts::equiv},
      {"--min-effect", kCheck, "a control that cannot tell this difference makes the run noisy",
       &Texts::min_effect},
      {"--strict", kCheck, "exit 5 when the run is noisy", &Options::strict},
      {"--timeout", kCheck, "deadline of one operation", &Texts::timeout},
  };
}

std::vector<OptionFacts> what_to_write() {
  return {
      {"--json", kOutput, "JSON lines to this file; - is stdout, the table moves to stderr",
       &Options::json},
      {"--csv", kOutput, "one row per block to this file", &Options::csv},
      {"--md", kOutput, "the printed tables as Markdown to this file", &Options::markdown},
      {"--report", kOutput, "one HTML file with tables and plots", &Options::report},
      {"--svg", kOutput, "each plot as a file of its own in this folder", &Options::svg},
      {"--raw", kOutput, "keep every sample in --json", &Options::raw},
      {"--columns", kOutput, "columns of the table: see list columns", &Texts::columns},
      {"-q,--quiet", kOutput, "tables only", &Options::quiet},
      {"-v,--verbose", kOutput, "a line on stderr for every block", &Options::verbose},
      {"--color", kOutput, "auto, always, never", &Texts::color},
      {"--progress", kOutput, "auto, on, off", &Texts::progress},

      {"--dry-run", kAgain, "print the plan, start nothing", &Options::dry_run},
      {"--replay", kAgain,
       "the command line of this file of --json; what is typed beside it wins, ops too",
       &Texts::replay},
      {"--only", kAgain, "of all cells these, with the base: mpi:16M, all_reduce:mpi:16M",
       &Texts::only},
  };
}

}  // namespace

const std::vector<OptionFacts>& option_facts() {
  static const std::vector<OptionFacts> all = [] {
    std::vector<OptionFacts> facts = what_to_measure();
    for (const auto& part : {how_to_measure(), what_to_write()})
      facts.insert(facts.end(), part.begin(), part.end());
    return facts;
  }();
  return all;
}

const std::vector<std::string>& output_names() {
  static const std::vector<std::string> names = {"--json", "--csv", "--md", "--report", "--svg"};
  return names;
}

}  // namespace c10d::bench
