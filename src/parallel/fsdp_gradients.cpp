// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/fsdp_gradients.h"

#include "src/parallel/agree.h"

namespace c10d::inline v0::parallel {

GradientSums::GradientSums(ProcessGroup& group, ProcessGroup* replicas, ReduceMode mode, int shards)
    : group_(twin_of(group, "fsdp")) {
  if (replicas) replicas_ = twin_of(*replicas, "fsdp");
  if (mode == ReduceMode::reproducible) {
    tree_.emplace(group_, shards);
    if (replicas) replica_tree_.emplace(replicas_, replicas_.size());
  }
  thread_ = std::thread([this] { serve(); });
}

GradientSums::~GradientSums() {
  bool is_busy;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    is_busy = done_ < submitted_;
    jobs_.clear();
  }
  if (is_busy) abort("Fsdp was destroyed in the middle of a step");
  changed_.notify_all();
  thread_.join();
}

std::uint64_t GradientSums::submit(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return ++submitted_;
}

void GradientSums::wait(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  // Bounded: every op of the thread has the deadline of its group.
  changed_.wait(lock, [&] { return error_ || done_ >= number; });
  if (error_) std::rethrow_exception(error_);
}

void GradientSums::abort(std::string_view why) const noexcept {
  group_.abort(why);
  if (replicas_) replicas_.abort(why);
}

void GradientSums::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_ending_ || !jobs_.empty(); });
    if (is_ending_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      sum(job);
    } catch (const std::exception& failure) {
      error = std::current_exception();
      abort(failure.what());  // the ranks of the other group must not wait for this one
    }
    lock.lock();
    ++done_;
    error_ = error;
    changed_.notify_all();
    if (error_) return;
  }
}

void GradientSums::sum(const Job& job) {
  const double divisor = replicas_ ? 1 : job.divisor;
  if (tree_ && job.counts.empty()) {
    tree_->all_reduce(job.out, job.partials, divisor);
  } else if (tree_) {
    tree_->reduce_scatter(job.out, job.partials, job.counts, divisor);
  } else {
    if (job.counts.empty())
      group_.all_reduce(job.out, job.partials[0]);
    else
      group_.reduce_scatter_v(job.out, job.partials[0], job.counts);
    divide(job.out, divisor);
  }
  if (!replicas_) return;
  if (replica_tree_) {
    const ConstTensor own = job.out;
    replica_tree_->all_reduce(job.out, {&own, 1}, job.divisor);
  } else {
    replicas_.all_reduce(job.out);
    divide(job.out, job.divisor);
  }
}

}  // namespace c10d::inline v0::parallel
