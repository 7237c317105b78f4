// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c10d/launch.h"
#include "src/launch/rendezvous.h"

namespace c10d { inline namespace v0 {

// Judges a run: which rank failed first, and with which exit code the job ends.
class Outcome {
 public:
  explicit Outcome(const LaunchOptions& options) : options_(options) {}  // must outlive it

  // A rank of this host failed. `result` must live as long as this; `killed` says that the launcher
  // has killed the ranks. Returns whether it is the first.
  bool note_failure(const RankResult& result, bool killed);
  void note_signal(int signal);  // that the launcher forwarded
  void note_timeout() { timed_out_ = true; }
  void note_verdict(Verdict verdict) { verdict_ = std::move(verdict); }
  void note_positions(std::string text) { positions_ = std::move(text); }

  const std::optional<Verdict>& verdict() const noexcept { return verdict_; }
  // Ranks that end now were stopped by another host or by the timeout: no failures of their own.
  bool is_decided() const noexcept { return verdict_ || timed_out_; }
  // No further failure is tolerated.
  bool is_next_fatal() const noexcept { return failures_ >= options_.max_failures; }
  // A rank ended by the signal that the launcher forwarded, or by SIGKILL after it.
  bool is_told(const RankResult& result) const noexcept {
    return forwarded_signal_ != 0 &&
           (result.signal == forwarded_signal_ || result.signal == SIGKILL);
  }
  bool is_success() const noexcept { return cause_ == nullptr && !timed_out_; }
  LaunchResult result(std::vector<RankResult> ranks);

 private:
  const LaunchOptions& options_;
  std::optional<Verdict> verdict_;     // of the rendezvous
  const RankResult* cause_ = nullptr;  // the rank that failed first
  Deadline cause_by_{};                // a failure after that cannot be the cause
  int failures_ = 0;
  int forwarded_signal_ = 0;
  bool timed_out_ = false;
  std::string positions_;  // LaunchResult::rank_positions
};

}}  // namespace c10d::v0
