// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "c10d/parallel/philox.h"
#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

// Apart from the layers of models, which count from 0.
constexpr std::uint32_t kOrderStream = 0xffffffffu;

}  // namespace

DistributedSampler::DistributedSampler(SamplerOptions options) : options_(options) {
  if (options.samples < 0)
    throw_invalid("DistributedSampler: a data set cannot have {} samples", options.samples);
  if (options.rank < 0 || options.rank >= options.size)
    throw_invalid("DistributedSampler: rank {} is out of [0, {})", options.rank, options.size);
  if (options.tail > TailPolicy::drop)
    throw_invalid("DistributedSampler: tail policy {} does not exist",
                  static_cast<int>(options.tail));
  set_epoch(0);
}

void DistributedSampler::set_epoch(std::uint64_t epoch) {
  epoch_ = epoch;
  cursor_ = 0;
  const auto samples = static_cast<std::size_t>(options_.samples);
  order_.resize(samples);
  std::iota(order_.begin(), order_.end(), 0);
  if (options_.shuffle) {
    PhiloxStream random(options_.seed, epoch, 0, kOrderStream);
    for (std::size_t i = samples; i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
  }
  const auto ranks = static_cast<std::size_t>(options_.size);
  if (options_.tail == TailPolicy::drop) order_.resize(samples - samples % ranks);
  if (options_.tail == TailPolicy::pad && samples != 0) {
    order_.resize((samples + ranks - 1) / ranks * ranks);
    for (std::size_t i = samples; i < order_.size(); ++i) order_[i] = order_[i - samples];
  }
}

void DistributedSampler::seek(std::int64_t cursor) {
  if (cursor < 0 || cursor > total())
    throw_invalid("DistributedSampler: cursor {} is out of [0, {}]: is this another data set?",
                  cursor, total());
  cursor_ = cursor;
}

std::span<const std::int64_t> DistributedSampler::next(std::int64_t batch) {
  if (batch <= 0)
    throw_invalid("DistributedSampler: a batch of {} samples; give at least 1", batch);
  const std::int64_t first = cursor_;
  cursor_ += std::min(batch, total() - cursor_);
  return std::span(order_).subspan(static_cast<std::size_t>(first),
                                   static_cast<std::size_t>(cursor_ - first));
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  std::vector<std::int64_t> own;
  for (std::int64_t at = cursor_ + options_.rank; at < total(); at += options_.size)
    own.push_back(order_[static_cast<std::size_t>(at)]);
  return own;
}

}}}  // namespace c10d::v0::parallel
