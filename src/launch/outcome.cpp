// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/outcome.h"

#include <signal.h>

#include <chrono>
#include <utility>

#include "src/base/timeouts.h"

namespace c10d { inline namespace v0 {

bool Outcome::note_failure(const RankResult& result, bool killed) {
  ++failures_;
  const Deadline now = std::chrono::steady_clock::now();
  if (cause_ == nullptr) {
    cause_ = &result;
    cause_by_ = now + clamp_timeout(options_.grace);
    return true;
  }
  // The kernel takes apart the memory of a killed process before it reports the end, which takes a
  // second for a large one: by then its peers have failed because of it. Only somebody else sends
  // SIGKILL before we do. Where ranks continue without those that failed, a rank that is killed
  // later is another matter.
  if (result.signal == SIGKILL && cause_->signal == 0 && !killed && now < cause_by_)
    cause_ = &result;
  return false;
}

void Outcome::note_signal(int signal) {
  if (forwarded_signal_ == 0) forwarded_signal_ = signal;
}

LaunchResult Outcome::result(std::vector<RankResult> ranks) {
  LaunchResult result;
  result.ranks = std::move(ranks);
  result.forwarded_signal = forwarded_signal_;
  if (cause_ != nullptr) {
    result.first_failed = cause_->rank;
    const bool survived = failures_ <= options_.max_failures &&
                          failures_ < static_cast<int>(result.ranks.size()) &&
                          forwarded_signal_ == 0;
    if (!survived) result.exit_code = cause_->exit_code;
  }
  if (verdict_) {
    result.exit_code = verdict_->exit_code;
    if (verdict_->exit_code != 0 && verdict_->host != options_.hosts.number) {
      result.remote_failure = verdict_->text;
      result.first_failed = -1;
    }
  }
  result.rank_positions = std::move(positions_);
  result.timed_out = timed_out_;
  if (timed_out_) result.exit_code = kTimedOutExitCode;
  if (result.ranks.empty() && forwarded_signal_ != 0) result.exit_code = 128 + forwarded_signal_;
  return result;
}

}}  // namespace c10d::v0
