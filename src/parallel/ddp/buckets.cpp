// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/ddp/buckets.h"

#include <algorithm>

#include "c10d/parallel/reproducible.h"
#include "src/parallel/common/merge_plan.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

// What the widest vector instructions like, and a multiple of every element.
constexpr std::size_t kAlignment = 64;

constexpr std::size_t aligned_up(std::size_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::size_t bytes_per_bucket(std::span<const ParamSpec> params, const ReducerOptions& options) {
  constexpr std::size_t kBuckets = 8, kMost = std::size_t{25} << 20;
  std::size_t bytes = 0;
  for (const ParamSpec& spec : params) bytes += spec.bytes();
  return options.bucket_bytes.value_or(
      std::max(std::min(bytes / kBuckets, kMost), options.first_bucket_bytes));
}

std::size_t gradient_bytes(std::span<const ParamSpec> params, const ReducerOptions& options,
                           int size) {
  int slots = 1;
  for (int rank = 0; rank < size && options.mode == ReduceMode::reproducible; ++rank)
    slots = std::max(slots,
                     slots_of(merge_plan(options.shards, shards_of(options.shards, rank, size))));
  std::size_t bytes = 0;
  for (const ParamSpec& spec : params) bytes += aligned_up(spec.bytes());
  return std::max(bytes, kAlignment) * static_cast<std::size_t>(slots);
}

Buckets::Buckets(const ProcessGroup& group, std::span<const ParamSpec> params,
                 std::vector<std::size_t> order, const ReducerOptions& options)
    : params_(params),
      first_limit_(options.first_bucket_bytes),
      limit_(bytes_per_bucket(params, options)),
      order_(std::move(order)),
      places_(params.size()) {
  lay_out();
  memory_ = group.allocate<std::uint8_t>(gradient_bytes(params, options, group.size()));
}

void Buckets::reorder(std::vector<std::size_t> order) {
  order_ = std::move(order);
  lay_out();
  std::fill_n(memory_.data(), memory_.size(), std::uint8_t{0});  // the padding, too
}

void Buckets::lay_out() {
  buckets_.clear();
  bytes_ = 0;
  for (const std::size_t param : order_)
    append(param, buckets_.size() <= 1 ? first_limit_ : limit_);
}

void Buckets::append(std::size_t param, std::size_t limit) {
  const ParamSpec& spec = params_[param];
  const std::size_t bytes = aligned_up(spec.bytes());
  if (buckets_.empty() || buckets_.back().dtype != spec.dtype ||
      buckets_.back().bytes + bytes > limit)
    buckets_.push_back({.first = bytes_, .dtype = spec.dtype});
  Extent& last = buckets_.back();
  last.params.push_back({param, &spec, last.bytes / size_of(spec.dtype)});
  places_[param] = {buckets_.size() - 1, bytes_};
  last.bytes += bytes;
  bytes_ += bytes;
}

std::byte* Buckets::arena(int slot) const noexcept {
  return reinterpret_cast<std::byte*>(memory_.data()) + static_cast<std::size_t>(slot) * bytes_;
}

Bucket Buckets::bucket(std::size_t index, double samples) const {
  return {index, values(index, 0), buckets_[index].params, samples, {}};
}

View Buckets::values(std::size_t index, int slot) const {
  const Extent& extent = buckets_[index];
  return {arena(slot) + extent.first, extent.bytes / size_of(extent.dtype), extent.dtype};
}

std::span<std::byte> Buckets::gradient(std::size_t param, int slot) const {
  return {arena(slot) + places_[param].first, params_[param].bytes()};
}

}}}  // namespace c10d::v0::parallel
