// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "c10d/export.h"

namespace c10d { inline namespace v0 { namespace parallel {

// What happens when the samples do not divide by the ranks.
enum class Uneven : std::uint8_t {
  exact,  // some ranks have one sample more than others: every sample counts once
  pad,    // the order goes on from its start until all ranks have the same number
  drop,   // the end of the order is left out
};

struct SamplerOptions {
  std::int64_t samples = 0;  // of the data set
  int rank = 0;
  int size = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
  Uneven uneven = Uneven::exact;
};

// Who takes which samples. There is one global order per (seed, epoch), made by every rank by
// itself and split afterwards: it does not depend on the number of ranks. The cursor is a position
// in that order, so that a run may be resumed with other ranks. One thread at a time.
//
// Two ways to take from it, which may be mixed only between epochs:
//   next()     the global batch, the same on every rank; cut it with samples_of(). The bits of a
//              training run then do not depend on the number of ranks (with Uneven::exact).
//   indices()  this rank's part of the rest of the epoch
class C10D_API DistributedSampler {
 public:
  // Throws InvalidArgument for samples < 0, a rank out of [0, size).
  explicit DistributedSampler(SamplerOptions options);

  // Starts epoch `epoch`, cursor 0. A new sampler is in epoch 0.
  void set_epoch(std::uint64_t epoch);
  std::uint64_t epoch() const noexcept { return epoch_; }

  // Positions in this epoch: samples, padded or cut to a multiple of the ranks unless exact.
  std::int64_t total() const noexcept { return static_cast<std::int64_t>(order_.size()); }
  // Positions that this and the other ranks have taken together.
  std::int64_t cursor() const noexcept { return cursor_; }
  // Goes on from there, with the same epoch. Throws InvalidArgument out of [0, total()].
  void seek(std::int64_t cursor);

  // The samples at the next `batch` positions, fewer at the end of the epoch, none after it; moves
  // the cursor. Valid until set_epoch. Throws InvalidArgument unless batch > 0.
  std::span<const std::int64_t> next(std::int64_t batch);

  // Samples at cursor() + rank, + rank + size, ...
  std::vector<std::int64_t> indices() const;

 private:
  SamplerOptions options_;
  std::uint64_t epoch_ = 0;
  std::int64_t cursor_ = 0;
  std::vector<std::int64_t> order_;
};

}}}  // namespace c10d::v0::parallel
