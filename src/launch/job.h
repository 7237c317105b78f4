// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "c10d/launch.h"
#include "src/launch/job_resources.h"
#include "src/launch/outcome.h"
#include "src/launch/rank_processes.h"
#include "src/launch/rendezvous.h"
#include "src/launch/signals.h"

namespace c10d { inline namespace v0 {

// One run of all ranks of this host, phase by phase; a job on several hosts has one Job on each.
class Job {
 public:
  explicit Job(const LaunchOptions& options);  // `options` must outlive it
  ~Job();                                      // kills what still runs
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  LaunchResult run();

 private:
  // `stopping`: the ranks got a signal. `killed`: they got SIGKILL. `draining`: their last output
  // is read. `waiting`: other hosts still run.
  enum class Phase { rendezvous, running, stopping, killed, draining, waiting, done };

  void start(const World& world);
  void poll_once();
  void advance();
  void note_failure(const RankResult& result);
  void fail_by_signal(int signal);
  void take_news();
  void take_signals();
  void stop(int signal);
  void stop_late();
  void finish();
  void enter(Phase phase, Duration timeout);

  const LaunchOptions& options_;
  SignalRelay signals_;
  JobResources resources_;
  std::unique_ptr<Rendezvous> rendezvous_;  // where there are several hosts
  RankProcesses ranks_;
  Outcome outcome_;
  Phase phase_;
  std::optional<Deadline> deadline_;  // of the phase
};

}}  // namespace c10d::v0
