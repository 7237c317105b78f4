// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/fsdp/gradients.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "src/parallel/common/consistency.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

// Through copies of so many elements: compilers vectorize what shares no memory.
constexpr std::size_t kNarrowChunk = 1024;

// Rounds f32 to bf16, which lie in the first half of the same memory then.
View narrow_in_place(const View& values) {
  std::array<float, kNarrowChunk> wide{};
  std::array<BFloat16, kNarrowChunk> halves{};
  auto* const bytes = static_cast<std::byte*>(values.data);
  for (std::size_t at = 0; at < values.count; at += kNarrowChunk) {
    const std::size_t count = std::min(kNarrowChunk, values.count - at);
    std::memcpy(wide.data(), bytes + at * sizeof(float), count * sizeof(float));
    std::transform(wide.begin(), wide.end(), halves.begin(),
                   [](float value) { return BFloat16(value); });
    std::memcpy(bytes + at * sizeof(BFloat16), halves.data(), count * sizeof(BFloat16));
  }
  return {values.data, values.count, DType::bf16};
}

// Exact. `to`, of as many f32, may share memory with `from` where no element of `to` lies before
// its own of `from`: a slice of narrow_in_place() back to that slice of the f32.
void widen_in_place(const ConstView& from, const View& to) {
  std::array<float, kNarrowChunk> wide{};
  std::array<BFloat16, kNarrowChunk> halves{};
  const auto* const source = static_cast<const std::byte*>(from.data);
  auto* const target = static_cast<std::byte*>(to.data);
  // From the end: what is written lies behind what is still to be read.
  for (std::size_t end = from.count; end > 0;) {
    const std::size_t count = std::min(kNarrowChunk, end);
    end -= count;
    std::memcpy(halves.data(), source + end * sizeof(BFloat16), count * sizeof(BFloat16));
    std::transform(halves.begin(), halves.end(), wide.begin(),
                   [](BFloat16 value) { return static_cast<float>(value); });
    std::memcpy(target + end * sizeof(float), wide.data(), count * sizeof(float));
  }
}

void add_over_ranks(const ProcessGroup& group, std::optional<TreeSum>& tree, const View& out,
                    std::span<const ConstView> partials, std::span<const std::size_t> counts) {
  if (tree && counts.empty()) return tree->all_reduce(out, partials);
  if (tree) return tree->reduce_scatter(out, partials, counts);
  if (counts.empty())
    group.all_reduce(out, partials[0]);
  else
    group.reduce_scatter_v(out, partials[0], counts);
}

}  // namespace

GradientSums::GradientSums(const ProcessGroup& group, const ProcessGroup& replicas,
                           const FsdpOptions& options, int shards)
    : users_(group),
      users_replicas_(replicas),
      group_(duplicate_group(group, "fsdp")),
      wire_(options.reduce) {
  if (replicas) replicas_ = duplicate_group(replicas, "fsdp");
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
      abort("Fsdp: a callback of on_reduced() threw something other than a std::exception");
      throw;
    }
  });
}

void GradientSums::abort(std::string_view why) const noexcept {
  users_.abort(why);
  group_.abort(why);
  if (!users_replicas_) return;
  users_replicas_.abort(why);
  replicas_.abort(why);
}

void GradientSums::sum(const Job& job) {
  const bool is_narrow = wire_ == DType::bf16;
  const View arena = is_narrow ? narrow_in_place(job.arena) : job.arena;
  std::vector<ConstView> partials;
  for (std::size_t i = 0; i < job.partials; ++i)
    partials.emplace_back(static_cast<std::byte*>(arena.data) + i * arena.bytes(), arena.count,
                          arena.dtype);
  const View out = arena.slice(job.first, job.count);
  const View mean = job.arena.slice(job.first, job.count);
  add_over_ranks(group_, tree_, out, partials, job.counts);
  const ConstView own = out;
  if (replicas_) add_over_ranks(replicas_, replica_tree_, out, {&own, 1}, {});
  if (is_narrow) widen_in_place(out, mean);
  divide(mean, job.divisor);
}

}}}  // namespace c10d::v0::parallel
