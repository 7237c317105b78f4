// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/common/tree_fold.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/reduce.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

// Inner nodes stay in the L1 and L2 caches.
constexpr std::size_t kTileBytes = std::size_t{8} << 10;

class TileFold {
 public:
  TileFold(DType dtype, std::span<const ShardRange> nodes, std::span<const ConstTensor> values,
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
  const std::span<const ConstTensor> values_;
  const std::size_t first_, count_;
  std::size_t at_ = 0;
};

}  // namespace

void fold(Tensor out, int shards, std::span<const ShardRange> nodes,
          std::span<const ConstTensor> values, double divisor) {
  const std::size_t step = kTileBytes / size_of(out.dtype);
  const auto levels = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(shards))) + 1;
  std::vector<std::byte> tiles(levels * kTileBytes);
  for (std::size_t first = 0; first < out.count; first += step) {
    const std::size_t count = std::min(step, out.count - first);
    TileFold tile(out.dtype, nodes, values, first, count);
    const Tensor part = out.slice(first, count);
    auto* const to = static_cast<std::byte*>(part.data);
    const std::byte* const sum = tile.sum({0, shards}, to, tiles.data());
    if (sum != to) std::memcpy(to, sum, part.bytes());
    divide(part, divisor);
  }
}

}}}  // namespace c10d::v0::parallel
