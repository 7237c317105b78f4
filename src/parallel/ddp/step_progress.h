// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

namespace c10d { inline namespace v0 { namespace parallel {

// How far a step is: which gradients are ready, how many buckets are reduced, why it failed. Here
// the caller and the reducer's thread wait for each other. Thread-safe.
class StepProgress {
 public:
  // A parameter is ready after `shards` shards.
  StepProgress(std::size_t params, std::size_t shards);

  // Nothing is ready. `pending`: of each bucket, how many of its parameters will become ready.
  void begin(std::vector<std::size_t> pending);

  std::size_t shards_done(std::size_t param) const;
  void add_shard(std::size_t param, std::size_t bucket);
  std::vector<std::size_t> missing() const;      // parameters that are not ready
  std::vector<std::size_t> ready_order() const;  // parameters, as they became ready

  void add_reduced_bucket();
  // When it became ready; nothing when the step has failed.
  std::optional<std::chrono::steady_clock::time_point> wait_until_ready(std::size_t bucket);
  // False when the step has failed.
  bool wait_until_reduced(std::size_t bucket);

  // The first failure stays. This rank's own mistake comes before any other.
  void fail(std::exception_ptr cause, bool is_own_mistake);
  bool has_failed() const;
  void rethrow_failure() const;

 private:
  bool failed() const { return mistake_ || failure_; }

  const std::size_t shards_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<std::size_t> done_;     // by parameter: shards
  std::vector<std::size_t> pending_;  // by bucket: parameters that are not ready
  std::vector<std::chrono::steady_clock::time_point> ready_at_;  // by bucket
  std::vector<std::size_t> ready_order_;
  std::size_t reduced_ = 0;  // buckets
  std::exception_ptr mistake_, failure_;
};

}}}  // namespace c10d::v0::parallel
