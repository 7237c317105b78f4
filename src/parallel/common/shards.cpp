// SPDX-License-Identifier: BSD-3-Clause
// Which rank has which shards, how it adds its own, and how the sums of all ranks add up.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "kernels/reduce.h"
#include "src/parallel/common/gpu_sums.h"
#include "src/parallel/common/merge_plan.h"
#include "src/parallel/common/throw_invalid.h"

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
    throw_invalid("{}: {} shards; give 1 to {}", who, shards, kMostShards);
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

// The vectors of kernels, and whole lines of memory.
constexpr std::size_t kGpuAlignment = 256;
// Inner nodes stay in the L1 and L2 caches.
constexpr std::size_t kTileBytes = std::size_t{8} << 10;

class TileFold {
 public:
  TileFold(DType dtype, std::span<const ShardRange> nodes, std::span<const ConstView> values,
           std::size_t first, std::size_t count)
      : dtype_(dtype), nodes_(nodes), values_(values), first_(first), count_(count) {}

  // The sum of `node`: where it lies already, or in `to`, which is written when all that `node`
  // needs was read: it may be `tiles`, which has one tile per level, or one of the values.
  const std::byte* sum(ShardRange node, std::byte* to, std::byte* tiles) {
    if (nodes_[at_] == node)
      return static_cast<const std::byte*>(values_[at_++].slice(first_, count_).data);
    const int mid = (node.first + node.last) / 2;
    const std::byte* const left = sum({node.first, mid}, tiles, tiles);
    std::byte* const next = tiles + kTileBytes;
    const std::byte* const right = sum({mid, node.last}, next, next);
    const std::array<const std::byte*, 2> both{left, right};
    reduce(dtype_, ReduceOp::sum, to, both, count_);
    return to;
  }

 private:
  const DType dtype_;
  const std::span<const ShardRange> nodes_;
  const std::span<const ConstView> values_;
  const std::size_t first_, count_;
  std::size_t at_ = 0;
};

}  // namespace

ShardRange shards_of(int shards, int rank, int size) {
  check_shards("shards_of", shards);
  if (rank < 0 || rank >= size) throw_invalid("shards_of: rank {} is out of [0, {})", rank, size);
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
    throw_invalid("samples_of: no shard {} of {} exists in a batch of {} samples", shard, shards,
                  batch);
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

void fold(View out, int shards, std::span<const ShardRange> nodes,
          std::span<const ConstView> values, double divisor) {
  const std::size_t step = kTileBytes / size_of(out.dtype);
  const auto levels = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(shards))) + 1;
  std::vector<std::byte> tiles(levels * kTileBytes);
  for (std::size_t first = 0; first < out.count; first += step) {
    const std::size_t count = std::min(step, out.count - first);
    TileFold tile(out.dtype, nodes, values, first, count);
    const View part = out.slice(first, count);
    auto* const to = static_cast<std::byte*>(part.data);
    const std::byte* const sum = tile.sum({0, shards}, to, tiles.data());
    if (sum != to) std::memcpy(to, sum, part.bytes());
    divide(part, divisor);
  }
}

void check_summable(std::string_view who, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64)
    throw_invalid("{}: partial sums are f32 or f64, not {}", who, to_string(dtype));
}

void add_to(View to, ConstView from, CudaStream stream) {
  check_summable("add_to", to.dtype);
  check_same_memory("add_to", to, from);
  check_stream("add_to", to.device, stream);
  if (to.count != from.count || to.dtype != from.dtype)
    throw_invalid("add_to: {} elements of {} cannot be added to {} of {}", from.count,
                  to_string(from.dtype), to.count, to_string(to.dtype));
  if (is_on_gpu(to)) return GpuSums("add_to", to.device, stream).add(to, from);
  auto* const out = static_cast<std::byte*>(to.data);
  const std::array<const std::byte*, 2> in{out, static_cast<const std::byte*>(from.data)};
  if (to.count != 0) reduce(to.dtype, ReduceOp::sum, out, in, to.count);
}

void divide(View value, double divisor, CudaStream stream) {
  check_stream("divide", value.device, stream);
  if (divisor == 1) return;
  if (!is_floating(value.dtype) || is_float8(value.dtype))
    throw_invalid("divide: {} is none of f16, bf16, f32 and f64", to_string(value.dtype));
  if (is_on_gpu(value)) return GpuSums("divide", value.device, stream).divide(value, divisor);
  const auto narrow = static_cast<float>(divisor);
  switch (value.dtype) {
    case DType::f64:
      return divide_plain(value.data, value.count, divisor);
    case DType::f32:
      return divide_plain(value.data, value.count, narrow);
    case DType::f16: {
      auto* const values = static_cast<Float16*>(value.data);
      for (std::size_t i = 0; i < value.count; ++i)
        values[i] = Float16(static_cast<float>(values[i]) / narrow);
      return;
    }
    case DType::bf16: {
      auto* const values = static_cast<BFloat16*>(value.data);
      for (std::size_t i = 0; i < value.count; ++i)
        values[i] = BFloat16(static_cast<float>(values[i]) / narrow);
      return;
    }
    default:
      return;  // refused above
  }
}

struct ShardAccumulator::State {
  State(int shards, ShardRange owned, const View& shape, CudaStream stream_)
      : plan(merge_plan(shards, owned)),
        subtrees(subtrees_of(shards, owned).size()),
        one(shape),
        stream(stream_) {
    const auto slots = static_cast<std::size_t>(slots_of(plan));
    if (is_on_gpu(one)) {
      gpu.emplace("ShardAccumulator", one.device, stream).load(one.dtype);
      slot_bytes = (one.bytes() + kGpuAlignment - 1) / kGpuAlignment * kGpuAlignment;
      on_gpu = cuda::device_allocate(slots * slot_bytes, one.device.index);
    } else {
      slot_bytes = one.bytes();
      on_host.reset(new std::byte[slots * slot_bytes]);
    }
  }

  View slot(int index) const noexcept {
    auto* const memory = on_host ? on_host.get() : static_cast<std::byte*>(on_gpu.data);
    return {memory + static_cast<std::size_t>(index) * slot_bytes, one.count, one.dtype,
            one.device};
  }
  void add(const View& to, const ConstView& from) {
    if (gpu)
      gpu->add(to, from);
    else
      add_to(to, from);
  }

  const std::vector<MergeStep> plan;
  const std::size_t subtrees;
  const View one;  // what each slot is like
  const CudaStream stream;
  std::size_t slot_bytes = 0;
  std::unique_ptr<std::byte[]> on_host;
  Allocation on_gpu;
  std::optional<GpuSums> gpu;  // on a GPU only
  std::size_t shards_done = 0;
};

ShardAccumulator::ShardAccumulator(int shards, ShardRange owned, std::size_t count, DType dtype,
                                   Device device, CudaStream stream) {
  check_summable("ShardAccumulator", dtype);
  check_stream("ShardAccumulator", device, stream);
  state_ = std::make_unique<State>(shards, owned, View(nullptr, count, dtype, device), stream);
}
ShardAccumulator::~ShardAccumulator() = default;
ShardAccumulator::ShardAccumulator(ShardAccumulator&&) noexcept = default;
ShardAccumulator& ShardAccumulator::operator=(ShardAccumulator&&) noexcept = default;

View ShardAccumulator::next() {
  if (complete())
    throw std::logic_error(
        fmt::format("ShardAccumulator: all {} own shards are done; reset() starts a step",
                    state_->plan.size()));
  return state_->slot(state_->plan[state_->shards_done].slot);
}

void ShardAccumulator::done() {
  static_cast<void>(next());  // checks
  merge(
      state_->plan[state_->shards_done++], [&](int slot) { return state_->slot(slot); },
      [&](const View& to, const ConstView& from) { state_->add(to, from); });
}

void ShardAccumulator::add(ConstView leaf) {
  const View to = next();
  check_same_memory("ShardAccumulator", to, leaf);
  if (leaf.count != to.count || leaf.dtype != to.dtype)
    throw_invalid("ShardAccumulator: a shard of {} {} in a sum of {} {}", leaf.count,
                  to_string(leaf.dtype), to.count, to_string(to.dtype));
  if (is_on_gpu(to))
    cuda::copy(to, leaf, state_->stream);
  else if (leaf.count != 0)
    std::memcpy(to.data, leaf.data, leaf.bytes());
  done();
}

View ShardAccumulator::sum() {
  if (partials().size() != 1)
    throw std::logic_error(
        fmt::format("ShardAccumulator: sum() needs one partial sum, and the own shards make {}",
                    state_->subtrees));
  return state_->slot(0);
}

std::vector<ConstView> ShardAccumulator::partials() const {
  if (!complete())
    throw std::logic_error(fmt::format("ShardAccumulator: {} of {} own shards are done",
                                       state_->shards_done, state_->plan.size()));
  std::vector<ConstView> all;
  for (std::size_t j = 0; j < state_->subtrees; ++j)
    all.push_back(state_->slot(static_cast<int>(j)));
  return all;
}

bool ShardAccumulator::complete() const noexcept {
  return state_->shards_done == state_->plan.size();
}
void ShardAccumulator::reset() noexcept { state_->shards_done = 0; }

}}}  // namespace c10d::v0::parallel
