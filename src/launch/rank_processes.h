// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c10d/launch.h"
#include "src/launch/job_resources.h"
#include "src/launch/line_output.h"
#include "src/launch/spawn.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {

// SIGKILL works at once, except on a process that hangs in the kernel.
inline constexpr Duration kKillTimeout = std::chrono::seconds(5);

// The ranks of this host: their processes and their output. Ended ranks, which lead process groups,
// are reaped last: no process id that may still get a signal can be reused.
class RankProcesses {
 public:
  // Both must outlive it.
  RankProcesses(const LaunchOptions& options, const JobResources& resources)
      : options_(options), resources_(resources) {}
  ~RankProcesses();  // reaps; what still runs must have been killed
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Throws InvalidArgument when the command cannot run, DistBackendError (out_of_resources); then
  // some ranks may have started.
  void start(const World& world);
  // Waits until a rank wrote or ended, one of the descriptors `others` is readable or the deadline
  // has passed. Prints what ranks wrote and returns those that ended, killed ones first; a result
  // lives as long as this.
  std::vector<const RankResult*> poll(const std::vector<int>& others,
                                      const std::optional<Deadline>& deadline);
  // To the groups of all ranks, ended ones too: their children may still run.
  void signal(int number);
  // Also kills processes that have left the groups.
  void kill_all();

  bool all_started() const { return ranks_.size() == static_cast<std::size_t>(options_.ranks); }
  int running() const noexcept { return running_; }
  std::vector<pid_t> running_pids() const;
  bool streams_open() const;  // a rank, or a child of it, may still write
  // One per rank that started; ranks that did not end count as killed.
  std::vector<RankResult> results();

 private:
  struct Rank {
    Child child;
    LineStream out, err;
    LineTail tail;
    bool ended = false;
    RankResult result;
  };

  void start_rank(const JobFacts& facts, int local_rank);
  void read_stream(Rank& rank, bool is_stderr);
  void note_ended(Rank& rank);

  const LaunchOptions& options_;
  const JobResources& resources_;
  int status_columns_ = 0;  // 0: nothing shows rank 0's status line
  std::vector<std::unique_ptr<Rank>> ranks_;
  int running_ = 0;
};

}}  // namespace c10d::v0
