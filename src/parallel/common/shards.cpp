// SPDX-License-Identifier: BSD-3-Clause
// Which rank has which shards, and how it adds its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "c10d/parallel/reproducible.h"
#include "kernels/convert.h"
#include "kernels/reduce.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

constexpr int kMostShards = 65536;

// [index n / parts, (index + 1) n / parts), without overflow.
SampleRange share(std::int64_t n, std::int64_t parts, std::int64_t index) {
  const auto bound = [&](std::int64_t i) { return n / parts * i + n % parts * i / parts; };
  return {bound(index), bound(index + 1)};
}

void check_shards(std::string_view who, int shards) {
  if (shards < 1 || shards > kMostShards)
    throw InvalidArgument(fmt::format("{}: {} shards; give 1 to {}", who, shards, kMostShards));
}

void check_summable(std::string_view who, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64)
    throw InvalidArgument(fmt::format(
        "{}: {} cannot be summed in steps; partial sums are f32 or f64", who, to_string(dtype)));
}

// Walks the tree below `node`; `height` slots are taken.
void plan_node(ShardRange node, ShardRange owned, int& height, std::vector<MergeStep>& plan) {
  if (node.last <= owned.first || owned.last <= node.first) return;
  if (node.count() == 1) {
    plan.push_back({.slot = height++, .merges = 0});
    return;
  }
  const int mid = (node.first + node.last) / 2;
  plan_node({node.first, mid}, owned, height, plan);
  plan_node({mid, node.last}, owned, height, plan);
  if (owned.first <= node.first && node.last <= owned.last) {
    ++plan.back().merges;
    --height;
  }
}

void subtrees_below(ShardRange node, ShardRange owned, std::vector<ShardRange>& found) {
  if (node.last <= owned.first || owned.last <= node.first) return;
  if (owned.first <= node.first && node.last <= owned.last) {
    found.push_back(node);
    return;
  }
  const int mid = (node.first + node.last) / 2;
  subtrees_below({node.first, mid}, owned, found);
  subtrees_below({mid, node.last}, owned, found);
}

// The topmost split of the tree within [low, high], 0 < low <= high < last of the root.
int split_within(ShardRange node, int low, int high) {
  for (;;) {
    const int mid = (node.first + node.last) / 2;
    if (mid < low)
      node.first = mid;
    else if (mid > high)
      node.last = mid;
    else
      return mid;
  }
}

template <class T>
void divide_plain(void* data, std::size_t count, T divisor) {
  T* const values = static_cast<T*>(data);
  int exponent = 0;
  const T factor = 1 / divisor;
  // By a power of two, as most batches are: both are the exact quotient, rounded once, and a
  // product takes a third of the time.
  if (std::abs(std::frexp(divisor, &exponent)) == T{0.5} && std::isnormal(factor))
    for (std::size_t i = 0; i < count; ++i) values[i] *= factor;
  else
    for (std::size_t i = 0; i < count; ++i) values[i] /= divisor;
}

}  // namespace

ShardRange shards_of(int shards, int rank, int size) {
  check_shards("shards_of", shards);
  if (rank < 0 || rank >= size)
    throw InvalidArgument(fmt::format("shards_of: rank {} is out of [0, {})", rank, size));
  if (size >= shards) {
    const SampleRange range = share(shards, size, rank);
    return {static_cast<int>(range.first), static_cast<int>(range.last)};
  }
  const int most = (shards + size - 1) / size;
  ShardRange range;
  for (int rest = size - 1; rest >= size - 1 - rank; --rest) {
    range.first = range.last;
    range.last = rest == 0
                     ? shards
                     : split_within({0, shards}, std::max(range.first + 1, shards - rest * most),
                                    std::min(range.first + most, shards - rest));
  }
  return range;
}

SampleRange samples_of(std::int64_t batch, int shards, int shard) {
  check_shards("samples_of", shards);
  if (batch < 0 || shard < 0 || shard >= shards)
    throw InvalidArgument(
        fmt::format("samples_of: shard {} of {} of a batch of {}", shard, shards, batch));
  return share(batch, shards, shard);
}

std::vector<ShardRange> subtrees_of(int shards, ShardRange owned) {
  check_shards("subtrees_of", shards);
  std::vector<ShardRange> found;
  if (owned.count() > 0) subtrees_below({0, shards}, owned, found);
  return found;
}

std::vector<MergeStep> merge_plan(int shards, ShardRange owned) {
  check_shards("merge_plan", shards);
  std::vector<MergeStep> plan;
  int height = 0;
  if (owned.count() > 0) plan_node({0, shards}, owned, height, plan);
  return plan;
}

int slots_of(std::span<const MergeStep> plan) noexcept {
  int most = 0;
  for (const MergeStep& step : plan) most = std::max(most, step.slot);
  return most + 1;
}

void add_to(Tensor to, ConstTensor from) {
  check_summable("add_to", to.dtype);
  if (to.count != from.count || to.dtype != from.dtype)
    throw InvalidArgument(fmt::format("add_to: {} {} to {} {}", from.count, to_string(from.dtype),
                                      to.count, to_string(to.dtype)));
  auto* const out = static_cast<std::byte*>(to.data);
  const std::array<const std::byte*, 2> in{out, static_cast<const std::byte*>(from.data)};
  if (to.count != 0) reduce(to.dtype, ReduceOp::sum, out, in, to.count);
}

void divide(Tensor value, double divisor) {
  if (divisor == 1) return;
  const auto narrow = static_cast<float>(divisor);
  switch (value.dtype) {
    case DType::f64:
      return divide_plain(value.data, value.count, divisor);
    case DType::f32:
      return divide_plain(value.data, value.count, narrow);
    case DType::f16: {
      auto* const values = static_cast<Float16*>(value.data);
      for (std::size_t i = 0; i < value.count; ++i)
        values[i] = to_float16(to_float(values[i]) / narrow);
      return;
    }
    case DType::bf16: {
      auto* const values = static_cast<BFloat16*>(value.data);
      for (std::size_t i = 0; i < value.count; ++i)
        values[i] = to_bfloat16(to_float(values[i]) / narrow);
      return;
    }
    default:
      throw InvalidArgument(
          fmt::format("divide: {} is no floating point dtype", to_string(value.dtype)));
  }
}

ShardAccumulator::ShardAccumulator(int shards, ShardRange owned, std::size_t count, DType dtype)
    : plan_(merge_plan(shards, owned)),
      subtrees_(subtrees_of(shards, owned).size()),
      count_(count),
      dtype_(dtype) {
  check_summable("ShardAccumulator", dtype);
  memory_.reset(new std::byte[static_cast<std::size_t>(slots_of(plan_)) * count * size_of(dtype)]);
}

Tensor ShardAccumulator::slot(int index) const noexcept {
  return {memory_.get() + static_cast<std::size_t>(index) * count_ * size_of(dtype_), count_,
          dtype_};
}

Tensor ShardAccumulator::next() {
  if (complete())
    throw std::logic_error(fmt::format(
        "ShardAccumulator: all {} own shards are done; reset() starts a step", plan_.size()));
  return slot(plan_[shards_done_].slot);
}

void ShardAccumulator::done() {
  static_cast<void>(next());  // checks
  const MergeStep& step = plan_[shards_done_++];
  for (int last = step.slot; last > step.slot - step.merges; --last)
    add_to(slot(last - 1), slot(last));
}

void ShardAccumulator::add(ConstTensor leaf) {
  const Tensor to = next();
  if (leaf.count != to.count || leaf.dtype != to.dtype)
    throw InvalidArgument(fmt::format("ShardAccumulator: a shard of {} {} in a sum of {} {}",
                                      leaf.count, to_string(leaf.dtype), to.count,
                                      to_string(to.dtype)));
  if (leaf.count != 0) std::memcpy(to.data, leaf.data, leaf.bytes());
  done();
}

Tensor ShardAccumulator::sum() {
  if (partials().size() != 1)
    throw std::logic_error(fmt::format(
        "ShardAccumulator: the own shards make up {} sums; sum() is of one", subtrees_));
  return slot(0);
}

std::vector<ConstTensor> ShardAccumulator::partials() const {
  if (!complete())
    throw std::logic_error(
        fmt::format("ShardAccumulator: {} of {} own shards are done", shards_done_, plan_.size()));
  std::vector<ConstTensor> all;
  for (std::size_t j = 0; j < subtrees_; ++j) all.push_back(slot(static_cast<int>(j)));
  return all;
}

}}}  // namespace c10d::v0::parallel
