// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/model/cases.h"
#include "bench/model/record.h"
#include "bench/model/replay_plan.h"

namespace c10d::bench {

// What a rank does between ops, for as long as in the job: nothing, and for no time; the caller
// computes; the caller sleeps, as a thread does that waits for what to send; or it sleeps while
// another thread computes all the time, beside the ops too.
enum class Compute : std::uint8_t { none, gaps, sleep, beside };
constexpr const char* to_string(Compute compute) noexcept {
  switch (compute) {
    case Compute::none:
      return "none";
    case Compute::gaps:
      return "gaps";
    case Compute::sleep:
      return "sleep";
    case Compute::beside:
      break;
  }
  return "beside";
}

// How a plan is run.
struct ReplayOptions {
  std::vector<std::string> backends;
  std::size_t steps = 20;        // the last ones of the record
  std::size_t ops_per_step = 0;  // 0: as they are found
  Compute compute = Compute::gaps;
  double compute_seconds = 0;  // beside: CPU time of that thread in each step; 0: all the time
  Place place = Place::in;
  bool heap = false;    // buffers from the group's allocate()
  int blocks = 5;       // turns of each backend in a launch
  double timeout = 30;  // seconds, of one operation
  std::uint64_t seed = 42;
  int launch = 0;
  std::string token_path;  // of the job's secret, when no variable says it
};

// Bytes of buffers on one rank, for one backend; at most 2^48.
std::uint64_t replay_bytes(const ReplayPlan& plan);
// Seconds that one turn takes, if the ops take what they took in the job.
double replay_seconds(const ReplayPlan& plan, Compute compute);

// A line of kind replay about one turn, or about the record itself: without who ran it.
Json turn_json(const ReplayPlan& plan, std::span<const std::vector<Span>> spans);

// This process is a rank of a launch that replays the plan on each backend in turns. On rank 0
// `sink` gets a line of kind replay for each turn, and of kind skip for what could not be run.
// Returns the exit code.
int run_replay_rank(const ReplayPlan& plan, const ReplayOptions& options, const Sink& sink);

}  // namespace c10d::bench
