// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "bench/measure/block_runner.h"
#include "bench/measure/gpu.h"
#include "bench/measure/watchdog.h"
#include "bench/model/options.h"
#include "bench/model/record.h"
#include "bench/rank/column.h"
#include "bench/rank/control_group.h"

namespace c10d::bench {

// What all turns of a launch share.
struct LaunchState {
  const RunOptions& options;
  ControlGroup& control;
  Watchdog& watchdog;
  Sink sink;                      // on rank 0; elsewhere it drops what it gets
  const GpuSeat* seat = nullptr;  // of this rank; null: the CPU
  std::string placement = kOneHost;
  int failures = 0;  // of backends
  bool wrong = false;

  int number() const { return options.worker.launch < 0 ? 0 : options.worker.launch; }
  double block_seconds() const { return options.measurement.seconds / options.measurement.blocks; }
  void warn(const char* code, std::string text) const {
    sink(to_json(WarnRecord{code, std::move(text)}));
  }
};

// One column's part of a case. Every member but the accessors is collective.
class Turn {
 public:
  // `is_control`: the base once more, for A/A.
  Turn(LaunchState& launch, const Case& c, Column& column, Buffers& buffers, bool is_control);

  bool is_of(const Column& column) const { return &column == &column_; }
  bool is_alive() const { return column_.code.empty(); }
  // Checks, warms up, and agrees on the number of iterations.
  void prepare();
  void run_block(int block, int order);

 private:
  bool checks() const;
  void check(bool timed_before);
  bool drop_if_failed();
  // Longer than an op's own deadline and than the barrier's timeout, so that a failure that can be
  // named is.
  void expect(double seconds);
  std::string what() const;

  LaunchState& launch_;
  const Measurement& how_;
  const Case& case_;
  Column& column_;
  BlockRunner runner_;
  bool is_control_;
  std::uint64_t iterations_ = 0;
  std::uint64_t hash_ = 0;
  std::uint64_t wrong_ = 0;  // of a check whose block is not out yet
};

}  // namespace c10d::bench
