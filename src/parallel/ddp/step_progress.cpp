// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/ddp/step_progress.h"

#include <algorithm>
#include <utility>

namespace c10d { inline namespace v0 { namespace parallel {

StepProgress::StepProgress(std::size_t params, std::size_t shards)
    : shards_(shards), done_(params) {
  ready_order_.reserve(params);
}

void StepProgress::begin(std::vector<std::size_t> pending) {
  const std::lock_guard lock(mutex_);
  std::fill(done_.begin(), done_.end(), 0);
  pending_ = std::move(pending);
  ready_at_.assign(pending_.size(), std::chrono::steady_clock::now());
  ready_order_.clear();
  reduced_ = 0;
}

std::size_t StepProgress::shards_done(std::size_t param) const {
  const std::lock_guard lock(mutex_);
  return done_[param];
}

void StepProgress::add_shard(std::size_t param, std::size_t bucket) {
  const std::lock_guard lock(mutex_);
  if (++done_[param] != shards_) return;
  ready_order_.push_back(param);
  if (--pending_[bucket] != 0) return;
  ready_at_[bucket] = std::chrono::steady_clock::now();
  changed_.notify_all();
}

std::vector<std::size_t> StepProgress::missing() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::size_t> params;
  for (std::size_t param = 0; param < done_.size(); ++param)
    if (done_[param] != shards_) params.push_back(param);
  return params;
}

std::vector<std::size_t> StepProgress::ready_order() const {
  const std::lock_guard lock(mutex_);
  return ready_order_;
}

void StepProgress::add_reduced_bucket() {
  const std::lock_guard lock(mutex_);
  ++reduced_;
  changed_.notify_all();
}

std::optional<std::chrono::steady_clock::time_point> StepProgress::wait_until_ready(
    std::size_t bucket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed() || pending_[bucket] == 0; });
  if (failed()) return std::nullopt;
  return ready_at_[bucket];
}

bool StepProgress::wait_until_reduced(std::size_t bucket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed() || bucket < reduced_; });
  return !failed();
}

void StepProgress::fail(std::exception_ptr cause, bool is_own_mistake) {
  const std::lock_guard lock(mutex_);
  std::exception_ptr& first = is_own_mistake ? mistake_ : failure_;
  if (!first) first = std::move(cause);
  changed_.notify_all();
}

bool StepProgress::has_failed() const {
  const std::lock_guard lock(mutex_);
  return failed();
}

void StepProgress::rethrow_failure() const {
  const std::lock_guard lock(mutex_);
  if (failed()) std::rethrow_exception(mistake_ ? mistake_ : failure_);
}

}}}  // namespace c10d::v0::parallel
