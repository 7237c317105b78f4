// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/fsdp/gradients.h"

#include "src/parallel/common/consistency.h"
#include "src/parallel/fsdp/bf16_in_place.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

void add_over_ranks(ProcessGroup& group, std::optional<TreeSum>& tree, const Tensor& out,
                    std::span<const ConstTensor> partials, Counts counts) {
  if (tree && counts.empty()) return tree->all_reduce(out, partials);
  if (tree) return tree->reduce_scatter(out, partials, counts);
  if (counts.empty())
    group.all_reduce(out, partials[0]);
  else
    group.reduce_scatter_v(out, partials[0], counts);
}

}  // namespace

GradientSums::GradientSums(ProcessGroup& group, ProcessGroup* replicas, const FsdpOptions& options,
                           int shards)
    : users_(group),
      users_replicas_(replicas),
      group_(duplicate_group(group, "fsdp")),
      wire_(options.reduce) {
  if (replicas) replicas_ = duplicate_group(*replicas, "fsdp");
  if (options.mode != ReduceMode::reproducible) return;
  tree_.emplace(group_, shards);
  if (replicas) replica_tree_.emplace(replicas_, replicas_.size());
}

std::uint64_t GradientSums::submit(Job job) {
  return queue_.submit([this, job = std::move(job)] {
    try {
      sum(job);
      job.done();
    } catch (const std::exception& error) {
      abort(error.what());
      throw;
    } catch (...) {
      abort("Fsdp: an observer of sums threw what is no std::exception");
      throw;
    }
  });
}

void GradientSums::abort(std::string_view why) const noexcept {
  users_.abort(why);
  group_.abort(why);
  if (!users_replicas_) return;
  users_replicas_->abort(why);
  replicas_.abort(why);
}

void GradientSums::sum(const Job& job) {
  const bool is_narrow = wire_ == DType::bf16;
  const Tensor arena = is_narrow ? narrow_in_place(job.arena) : job.arena;
  std::vector<ConstTensor> partials;
  for (std::size_t i = 0; i < job.partials; ++i)
    partials.emplace_back(static_cast<std::byte*>(arena.data) + i * arena.bytes(), arena.count,
                          arena.dtype);
  const Tensor out = arena.slice(job.first, job.count);
  const Tensor mean = job.arena.slice(job.first, job.count);
  add_over_ranks(group_, tree_, out, partials, job.counts);
  const ConstTensor own = out;
  if (replicas_) add_over_ranks(replicas_, replica_tree_, out, {&own, 1}, {});
  if (is_narrow) widen_in_place(out, mean);
  divide(mean, job.divisor);
}

}}}  // namespace c10d::v0::parallel
