// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "c10d/export.h"

namespace c10d { inline namespace v0 { namespace parallel {

// What to do when the number of samples is no multiple of the number of ranks.
enum class TailPolicy : std::uint8_t {
  exact,  // some ranks get one sample more than others: every sample counts once
  pad,    // repeat samples from the start of the order until all ranks have the same number
  drop,   // leave out the end of the order, so that all ranks have the same number
};

// Options of a DistributedSampler.
struct SamplerOptions {
  std::int64_t samples = 0;             // of the data set
  int rank = 0;                         // of this process
  int size = 1;                         // number of ranks
  std::uint64_t seed = 0;               // of the shuffle; the same on every rank
  bool shuffle = true;                  // whether each epoch has a random order of its own
  TailPolicy tail = TailPolicy::exact;  // when samples is no multiple of size
};

// Decides which rank takes which samples (torch: DistributedSampler). Each (seed, epoch) has one
// global order of the samples. Every rank computes it by itself, so it does not depend on the
// number of ranks. The cursor is a position in that order: a run may resume with another number of
// ranks. Nothing is sent. One thread at a time.
//
// There are two ways to take samples, which may be mixed only between epochs:
// - next() is the global batch, the same on every rank; split it with samples_of(). With
//   TailPolicy::exact, the bits of a training run then do not depend on the number of ranks.
// - indices() is this rank's part of the rest of the epoch.
class C10D_API DistributedSampler {
 public:
  // Begins with epoch 0. Throws InvalidArgument for a negative number of samples or a rank out of
  // [0, size).
  explicit DistributedSampler(SamplerOptions options);

  // Starts an epoch, with cursor 0.
  void set_epoch(std::uint64_t epoch);
  // The epoch that runs.
  std::uint64_t epoch() const noexcept { return epoch_; }

  // Number of positions of an epoch: the number of samples, padded or cut to a multiple of the
  // ranks unless exact.
  std::int64_t total() const noexcept { return static_cast<std::int64_t>(order_.size()); }
  // Number of positions that all ranks together have taken with next().
  std::int64_t cursor() const noexcept { return cursor_; }
  // Continues at that position of the epoch. Throws InvalidArgument unless it is in [0, total()].
  void seek(std::int64_t cursor);

  // The samples at the next `batch` positions, over which it moves the cursor: fewer at the end of
  // the epoch, none after it. Valid until set_epoch(). Throws InvalidArgument unless batch > 0.
  std::span<const std::int64_t> next(std::int64_t batch);

  // This rank's samples of the rest of the epoch: at positions cursor() + rank, cursor() + rank +
  // size, ...
  std::vector<std::int64_t> indices() const;

 private:
  SamplerOptions options_;
  std::uint64_t epoch_ = 0;
  std::int64_t cursor_ = 0;
  std::vector<std::int64_t> order_;
};

}}}  // namespace c10d::v0::parallel
