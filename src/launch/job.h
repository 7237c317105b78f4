// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c10d/launch.h"
#include "src/launch/descriptor_limit.h"
#include "src/launch/environment.h"
#include "src/launch/line_output.h"
#include "src/launch/rendezvous.h"
#include "src/launch/signals.h"
#include "src/launch/spawn.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {

// One run of all ranks of this host; a job on several hosts has one Job on each. Ended ranks, which
// lead process groups, are reaped last: no process id that may still get a signal can be reused.
class Job {
 public:
  explicit Job(const LaunchOptions& options);  // `options` must outlive it
  ~Job();                                      // kills what still runs
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  LaunchResult run();

 private:
  struct Stream {
    Fd fd;
    LineSplitter lines;
  };
  struct Rank {
    Child child;
    Stream out, err;
    LineTail tail;
    bool ended = false;
    RankResult result;
  };
  enum class Phase { meeting, running, stopping, killed, draining, waiting, done };

  void start_all(const World& world);
  void start(int local_rank);
  JobFacts facts() const;
  void poll_once();
  void advance();
  void read_stream(Rank& rank, bool is_stderr);
  void note_ended(std::vector<Rank*> ended);
  void note_failure(const Rank& rank);
  void tell_others(const Rank& rank);
  void take_news();
  void take_signals();
  void stop(int signal);
  void stop_late();
  void finish();
  void kill_all();
  void send_all(int signal);
  bool streams_open() const;
  bool went_on() const;
  LaunchResult result();

  Rank& rank_of(int rank) { return *ranks_[static_cast<std::size_t>(rank - world_.first_rank)]; }

  const LaunchOptions& options_;
  const bool alone_;             // no other hosts
  const int status_columns_;     // 0: nothing shows rank 0's status line
  const std::string launch_id_;  // marks all processes of this host's part
  const std::string id_;
  const std::string token_;
  DescriptorLimit descriptors_;
  SignalRelay signals_;
  Guardian guardian_;
  Fd token_fd_, master_port_holder_, null_input_;
  std::shared_ptr<TcpStore> store_;
  std::uint16_t master_port_ = 0;
  std::unique_ptr<Rendezvous> rendezvous_;  // where there are several hosts
  World world_;
  std::optional<Verdict> verdict_;  // of the rendezvous
  std::vector<std::unique_ptr<Rank>> ranks_;
  int running_ = 0;
  Phase phase_ = Phase::running;
  std::optional<Deadline> deadline_;  // of the phase
  int first_failed_ = -1;
  Deadline cause_by_{};  // by when a rank counts as the cause of the first failure
  int failures_ = 0;
  int forwarded_signal_ = 0;
  bool timed_out_ = false;
  std::string places_;  // LaunchResult::places
};

}}  // namespace c10d::v0
