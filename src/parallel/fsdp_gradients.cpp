// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/fsdp_gradients.h"

#include "src/parallel/agree.h"

namespace c10d::inline v0::parallel {
namespace {

void add_over_ranks(ProcessGroup& group, std::optional<TreeSum>& tree, const GradientSums::Job& job,
                    double divisor) {
  if (tree && job.counts.empty()) return tree->all_reduce(job.out, job.partials, divisor);
  if (tree) return tree->reduce_scatter(job.out, job.partials, job.counts, divisor);
  if (job.counts.empty())
    group.all_reduce(job.out, job.partials[0]);
  else
    group.reduce_scatter_v(job.out, job.partials[0], job.counts);
  divide(job.out, divisor);
}

}  // namespace

GradientSums::GradientSums(ProcessGroup& group, ProcessGroup* replicas, ReduceMode mode, int shards)
    : group_(twin_of(group, "fsdp")) {
  if (replicas) replicas_ = twin_of(*replicas, "fsdp");
  if (mode != ReduceMode::reproducible) return;
  tree_.emplace(group_, shards);
  if (replicas) replica_tree_.emplace(replicas_, replicas_.size());
}

GradientSums::~GradientSums() {
  if (!queue_.is_idle()) abort("Fsdp was destroyed in the middle of a step");
}

std::uint64_t GradientSums::submit(Job job) {
  return queue_.submit([this, job = std::move(job)] {
    try {
      sum(job);
    } catch (const std::exception& error) {
      abort(error.what());  // the ranks of the other group must not wait for this one
      throw;
    }
  });
}

void GradientSums::abort(std::string_view why) const noexcept {
  group_.abort(why);
  if (replicas_) replicas_.abort(why);
}

void GradientSums::sum(const Job& job) {
  add_over_ranks(group_, tree_, job, replicas_ ? 1 : job.divisor);
  if (replicas_) add_over_ranks(replicas_, replica_tree_, {{job.out}, job.out, {}, 1}, job.divisor);
}

}  // namespace c10d::inline v0::parallel
