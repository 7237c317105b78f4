// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/model/cases.h"
#include "bench/model/column_name.h"
#include "c10d/store.h"

namespace c10d::bench {

enum class Check : std::uint8_t { first, all, off };
enum class Bind : std::uint8_t { automatic, set, core, none };
// How ranks come to an op: from the one before it, or each time from a synchronisation
// (block_runner.h).
enum class Sync : std::uint8_t { loop, window, barrier, own };
constexpr const char* to_string(Sync sync) noexcept {
  constexpr std::array kNames = {"loop", "window", "barrier", "own"};
  return kNames[static_cast<std::size_t>(sync)];
}
enum class Control : std::uint8_t { off, on, solo };
enum class Switch : std::uint8_t { automatic, on, off };

// Cells that --only keeps.
struct CellFilter {
  std::optional<BenchOp> op;
  std::string backend;
  std::uint64_t bytes = 0;
};

// What is measured: the cases, the same for every backend.
struct CaseOptions {
  Sweep sweep;
  bool all_roots = false;
  std::vector<CellFilter> only;  // empty: all
  int window = 16;               // messages in flight of isend
  bool cuda = false;             // buffers are on GPUs
};

// With what: the backends, and where their buffers are.
struct BackendOptions {
  std::vector<std::string> names;  // empty until choose_backends() has looked for them
  std::string algo;                // of native; empty: its own choice
  bool heap = false;               // buffers from the group's allocate()
};

// Where: on how many ranks, and on which CPUs.
struct Placement {
  int ranks = 0;               // 0: not given
  bool oversubscribe = false;  // more than four times the CPUs
  Bind bind = Bind::automatic;
};

// How one launch measures a cell.
struct Measurement {
  double seconds = 0.3;     // of all blocks together
  std::uint64_t iters = 0;  // per block; 0: by time
  int warmup = -1;          // iterations; -1: by time
  int blocks = 4;
  bool random_order = true;
  std::uint64_t seed = 42;
  bool dirty = true;
  Sync sync = Sync::loop;
  double start_skew = 0;  // seconds
  int busy = 0;           // processes that compute beside the ranks
  int graph_ops = 0;      // on GPUs: ops of one CUDA graph; 0: they are called one by one
  Check check = Check::first;
  double timeout = 30;  // seconds, of one operation
};

// What the numbers must be for a verdict.
struct VerdictOptions {
  Control control = Control::on;
  double equiv = 0.02;
  double min_effect = 0.05;
  bool strict = false;
};

// What is printed and written.
struct OutputOptions {
  std::string json, csv, markdown, report, svg;
  bool raw = false;
  std::vector<std::string> columns;
  bool quiet = false;
  bool verbose = false;
  Switch color = Switch::automatic;
  Switch progress = Switch::automatic;
};

// What the controller tells a rank that it starts.
struct WorkerOptions {
  int launch = -1;         // which one; -1: the controller did not start this process
  std::string results;     // where rank 0 writes its records
  std::string solo;        // measure this backend alone, on the cells that controls are made of
  std::string token_path;  // of the job's secret, when no variable says it
};

// A program that measures: this one, or one of the two builds of --against.
struct Build {
  std::string side{};                      // "A", "B"; empty: there is only this one
  std::string program{};                   // empty: this one
  std::vector<std::string> environment{};  // NAME=VALUE, besides the variables of this process
};

// Processes that are started together: one build, and one MPI or PyTorch at most. Sets take turns.
struct ProcessSet {
  Build build{};
  std::vector<std::string> backends{};  // as its -B takes them

  // "native@B": what the table calls a backend of this set.
  std::string column(const std::string& backend) const {
    return build.side.empty() ? backend : backend + "@" + build.side;
  }
  // "A", "mpich", "A mpich", "torch:gloo", "native".
  std::string name() const {
    std::string which;
    for (const std::string& backend : backends)
      if (which.empty()) which = is_torch(backend) ? backend : which_of(backend);
    if (which.empty()) return build.side.empty() ? backends.front() : build.side;
    return build.side.empty() ? which : build.side + " " + which;
  }
};

// The options of run and compare.
struct RunOptions {
  bool compare = false;
  std::vector<std::string> argv;  // as given: what --report prints and ranks are started with
  std::vector<std::string> set_arguments;  // the same without argv[0] and what is for all sets
  std::vector<Build> builds;               // of --against: two; else none
  std::vector<ProcessSet> sets;            // what process_sets() made of all that
  CaseOptions cases;
  BackendOptions backends;
  Placement placement;
  Measurement measurement;
  VerdictOptions verdicts;
  OutputOptions output;
  WorkerOptions worker;
  int launches = 0;  // 0: as many as process sets need
  bool dry_run = false;
};

inline Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// Every fourth case is measured once more as a control: enough to see what a ratio is worth.
constexpr bool is_control_case(std::size_t index) noexcept { return index % 4 == 0; }

}  // namespace c10d::bench
