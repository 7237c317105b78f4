// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "src/backends/native/collectives/collective.h"

namespace c10d { inline namespace v0 { namespace native {

// Who does what when data goes through staging in steps.
struct Flow {
  std::size_t steps = 0;
  bool stages = true;              // this rank puts data into its staging
  bool takes = true;               // this rank takes data out of the others' staging
  int reader = Round::kEveryRank;  // who takes it out of this rank's
};

// Enters the call and runs its steps: `stage(step)` fills this rank's slot, `take(step)` awaits
// and uses the slots of the others, one step behind, so that one rank's copying in overlaps with
// another's copying out. A template over the round for the model in tests/model.
template <class AnyRound, class Stage, class Take>
bool run_steps(AnyRound& round, const Flow& flow, Stage stage, Take take) {
  for (std::size_t step = 0; step <= flow.steps; ++step) {
    if (flow.stages && step < flow.steps) {
      if (!round.await_free(step, flow.reader)) return false;
      stage(step);
      if (round.entered()) round.publish(&Progress::staged, step + 1);
    }
    if (!round.entered() && !round.enter()) return false;
    if (flow.takes && step > 0) {
      if (!take(step - 1)) return false;
      round.publish(&Progress::consumed, step);
    }
  }
  return true;
}

// The same for a reduction in slices: `stage(step)` fills this rank's slot, `reduce(step)` works on
// the own slice of all slots and puts results back into them, `collect(step)`, on ranks that take
// the result, reads it out of the own slot, or, with `shared`, where every rank does, out of any.
// Each is one step behind the one before, so there must be three slots.
template <class AnyRound, class Stage, class Reduce, class Collect>
bool run_two_shots(AnyRound& round, std::size_t steps, bool collects, bool shared, Stage stage,
                   Reduce reduce, Collect collect) {
  const auto freed = shared ? &Progress::consumed : &Progress::reduced;
  for (std::size_t step = 0; step < steps + 2; ++step) {
    if (step < steps) {
      if (!round.await_free(step, AnyRound::kEveryRank, freed)) return false;
      stage(step);
      if (round.entered()) round.publish(&Progress::staged, step + 1);
    }
    if (!round.entered() && !round.enter()) return false;
    if (step >= 1 && step <= steps) {
      if (!round.await_all_staged(step - 1)) return false;
      reduce(step - 1);
      round.publish(&Progress::reduced, step);
    }
    if (step >= 2 && collects) {
      if (!round.await_all(&Progress::reduced, step - 1)) return false;
      collect(step - 2);
      if (shared) round.publish(&Progress::consumed, step - 1);
    }
  }
  return true;
}

// The same for two ranks that both stage and take, without a wait for free slots: `take(step)` uses
// the other's slot and fills it again, with this rank's data of `step + slots`: see
// exchange_place().
template <class AnyRound, class Stage, class Take>
bool run_exchange(AnyRound& round, std::size_t steps, std::size_t slots, Stage stage, Take take) {
  for (std::size_t step = 0; step < std::min(steps, slots); ++step) {
    stage(step);
    if (round.entered()) round.publish(&Progress::staged, step + 1);
    if (!round.entered() && !round.enter()) return false;
  }
  for (std::size_t step = 0; step < steps; ++step) {
    if (!round.await_staged(round.peer(1), step)) return false;
    take(step);
    if (step + slots < steps) round.publish(&Progress::staged, step + slots + 1);
  }
  return true;
}

// The blocks of a buffer that has one per rank, back to back: of equal size, or as `counts` says.
class Blocks {
 public:
  Blocks(std::size_t count, std::size_t element) noexcept : count_(count), element_(element) {}
  Blocks(std::span<const std::size_t> counts, std::size_t element) noexcept
      : counts_(counts), element_(element) {}

  std::size_t bytes(int rank) const noexcept {
    return (counts_.empty() ? count_ : counts_[static_cast<std::size_t>(rank)]) * element_;
  }
  std::size_t offset(int rank) const noexcept {
    if (counts_.empty()) return static_cast<std::size_t>(rank) * count_ * element_;
    std::size_t before = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) before += counts_[i];
    return before * element_;
  }
  std::size_t largest() const noexcept {
    const std::size_t most =
        counts_.empty() ? count_ : *std::max_element(counts_.begin(), counts_.end());
    return most * element_;
  }

 private:
  std::size_t count_ = 0;
  std::span<const std::size_t> counts_;
  std::size_t element_;
};

// The part of a block of `total` bytes that belongs to a step; empty when the block has ended
// before.
inline Part part_of(std::size_t total, Pieces pieces, std::size_t step) noexcept {
  const std::size_t first = std::min(total, step * pieces.bytes);
  return {first, std::min(pieces.bytes, total - first)};
}

// Two ranks that stream results exchange blocks: one loop takes a piece of the peer's to `taken`,
// stages a later one of `given` in its place, and copies `kept`, this rank's own block. `largest`:
// of the blocks, in bytes.
inline bool exchange_blocks(Round& round, const Choice& choice, std::size_t largest,
                            std::span<const std::byte> given, std::span<std::byte> taken,
                            const Copying& kept) {
  const int rank = round.rank(), peer = round.peer(1);
  const Pieces pieces = round.cut(choice, largest, 2);
  const auto keep = [&](std::size_t step) -> Copying {
    const Part part = part_of(kept.bytes, pieces, step);
    return {kept.to + part.first, kept.from + part.first, part.bytes};
  };
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(given.size(), pieces, step);
    round.copy_out(round.exchange_slot(rank, pieces, step), given.data() + part.first, part.bytes,
                   choice.store);
    const Copying own = keep(step);
    round.copy_out(own.to, own.from, own.bytes, choice.results);
  };
  const auto take = [&](std::size_t step) {
    const Part part = part_of(taken.size(), pieces, step);
    const Part next = part_of(given.size(), pieces, step + kSlots);
    std::byte* const slot = round.exchange_slot(peer, pieces, step);
    round.exchange_out({taken.data() + part.first, slot, part.bytes},
                       {slot, given.data() + next.first, next.bytes}, keep(step + kSlots));
  };
  return run_exchange(round, pieces.count, kSlots, stage, take);
}

// The part of `total` bytes that rank `index` of `parts` works on: whole cache lines of it.
inline Part share_of(std::size_t total, int parts, int index) noexcept {
  const std::size_t lines = (total + 63) / 64;
  const std::size_t each =
      (lines + static_cast<std::size_t>(parts) - 1) / static_cast<std::size_t>(parts) * 64;
  const std::size_t first = std::min(total, each * static_cast<std::size_t>(index));
  return {first, std::min(each, total - first)};
}

// What a direct algorithm works on at a time: small enough for a core's L2 cache, also where the
// blocks of all ranks have to be copied into this rank's staging first.
inline std::size_t scratch_block(const Round& round) noexcept {
  constexpr std::size_t kBlock = std::size_t{64} << 10;
  const auto peers = static_cast<std::size_t>(round.size() - 1);
  return std::clamp(round.team().layout().half_bytes() / peers / 64 * 64, std::size_t{64}, kBlock);
}

inline std::byte* bytes_of(const Tensor& tensor) noexcept {
  return static_cast<std::byte*>(tensor.data);
}
inline const std::byte* bytes_of(const ConstTensor& tensor) noexcept {
  return static_cast<const std::byte*>(tensor.data);
}

}}}  // namespace c10d::v0::native
