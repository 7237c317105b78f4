// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/model/cases.h"
#include "c10d/store.h"

namespace c10d::bench {

enum class Command : std::uint8_t {
  none,
  run,
  compare,
  tune,
  explain,
  ceiling,
  store,
  train,
  overlap,
  list,
  doctor,
  report
};
enum class Check : std::uint8_t { first, all, off };
enum class Bind : std::uint8_t { automatic, set, core, none };
// How ranks come to an op: from the one before it, or each time from a meeting (block_runner.h).
enum class Sync : std::uint8_t { loop, window, barrier };
constexpr const char* to_string(Sync sync) noexcept {
  return sync == Sync::loop ? "loop" : sync == Sync::window ? "window" : "barrier";
}
enum class Control : std::uint8_t { off, on, solo };

// Cells that --only keeps.
struct CellFilter {
  std::optional<BenchOp> op;
  std::string backend;
  std::uint64_t bytes = 0;
};
enum class Switch : std::uint8_t { automatic, on, off };

struct Options {
  Command command = Command::none;
  std::vector<std::string> argv;  // as given: what --report prints and workers are started with

  int ranks = 0;                      // 0: not given
  std::vector<std::string> backends;  // compare: empty until the controller has looked around
  Sweep sweep;
  std::vector<CellFilter> only;  // empty: all
  std::string algo;              // of native; empty: its own choice
  Bind bind = Bind::automatic;
  bool cuda = false;
  bool all_roots = false;
  int window = 16;

  double seconds = 0.3;     // per cell and launch
  std::uint64_t iters = 0;  // per block; 0: by time
  int warmup = -1;          // iterations; -1: by time
  int blocks = 4;
  int launches = 3;
  bool random_order = true;
  std::uint64_t seed = 42;
  bool dirty = true;
  bool heap = false;  // buffers from the group's allocate()
  Sync sync = Sync::loop;
  Check check = Check::first;
  double start_skew = 0;  // seconds
  Control control = Control::on;
  bool strict = false;
  double timeout = 30;  // seconds, of one operation
  double equiv = 0.02;
  double min_effect = 0.05;

  std::string json, csv, markdown, report, svg;
  bool raw = false;
  std::vector<std::string> columns;
  bool quiet = false;
  bool verbose = false;
  Switch color = Switch::automatic;
  Switch progress = Switch::automatic;
  bool dry_run = false;
  bool json_listing = false;       // list, doctor, ceiling, store
  std::string topic;               // of list; the op of explain
  std::uint64_t bytes = 0;         // of explain
  DType dtype = DType::f32;        // of explain
  std::vector<std::string> files;  // of report

  // Of train.
  std::string model = "resnet18";
  int batch_size = 32;  // of one rank
  int steps = 20;
  std::vector<std::string> pythons = {"python3"};  // of doctor too

  bool cross_check = false;  // of doctor

  // A rank that the controller started: which launch it belongs to, and where rank 0 writes its
  // records.
  int worker_launch = -1;
  std::string results;
  std::string solo;        // measure this backend alone, on the cells that controls are made of
  std::string token_path;  // where the job's secret is read from, when no variable says it
  bool is_worker() const { return worker_launch >= 0; }
};

inline Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// Every fourth case is measured once more as a control: enough to see what a ratio is worth.
constexpr bool is_control_case(std::size_t index) noexcept { return index % 4 == 0; }

}  // namespace c10d::bench
