// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "src/backends/native/collectives/collective.h"

namespace c10d { inline namespace v0 { namespace native {

// What a rank does when data goes through staging in steps.
struct Flow {
  std::size_t steps = 0;
  bool stages = true;                   // this rank puts data into its staging
  bool takes = true;                    // this rank takes data out of the others' staging
  int reader = Collective::kEveryRank;  // the rank that reads this rank's staging
};

// Enters the call and runs its steps: `stage(step)` fills this rank's slot, `take(step)` awaits
// and uses the slots of the others, one step behind, so that one rank's copying in overlaps with
// another's copying out. A template over the collective for the model in tests/model.
template <class AnyCollective, class Stage, class Take>
bool run_steps(AnyCollective& collective, const Flow& flow, Stage stage, Take take) {
  for (std::size_t step = 0; step <= flow.steps; ++step) {
    if (flow.stages && step < flow.steps) {
      if (!collective.await_free(step, flow.reader)) return false;
      stage(step);
      if (collective.entered()) collective.publish(&Progress::staged, step + 1);
    }
    if (!collective.entered() && !collective.enter()) return false;
    if (flow.takes && step > 0) {
      if (!take(step - 1)) return false;
      collective.publish(&Progress::consumed, step);
    }
  }
  return true;
}

// The same for a reduction in slices: `stage(step)` fills this rank's slot, `reduce(step)` works on
// the own slice of all slots and puts results back into them, `collect(step)`, on ranks that take
// the result, reads it out of the own slot, or, with `shared`, where every rank does, out of any.
// Each is one step behind the one before, so there must be three slots.
template <class AnyCollective, class Stage, class Reduce, class Collect>
bool run_two_shots(AnyCollective& collective, std::size_t steps, bool collects, bool shared,
                   Stage stage, Reduce reduce, Collect collect) {
  const auto freed = shared ? &Progress::consumed : &Progress::reduced;
  for (std::size_t step = 0; step < steps + 2; ++step) {
    if (step < steps) {
      if (!collective.await_free(step, AnyCollective::kEveryRank, freed)) return false;
      stage(step);
      if (collective.entered()) collective.publish(&Progress::staged, step + 1);
    }
    if (!collective.entered() && !collective.enter()) return false;
    if (step >= 1 && step <= steps) {
      if (!collective.await_all_staged(step - 1)) return false;
      reduce(step - 1);
      collective.publish(&Progress::reduced, step);
    }
    if (step >= 2 && collects) {
      if (!collective.await_all(&Progress::reduced, step - 1)) return false;
      collect(step - 2);
      if (shared) collective.publish(&Progress::consumed, step - 1);
    }
  }
  return true;
}

// The same for two ranks that both stage and take, without a wait for free slots: `take(step)` uses
// the other's slot and fills it again, with this rank's data of `step + slots`: see
// exchange_place().
template <class AnyCollective, class Stage, class Take>
bool run_exchange(AnyCollective& collective, std::size_t steps, std::size_t slots, Stage stage,
                  Take take) {
  for (std::size_t step = 0; step < std::min(steps, slots); ++step) {
    stage(step);
    if (collective.entered()) collective.publish(&Progress::staged, step + 1);
    if (!collective.entered() && !collective.enter()) return false;
  }
  for (std::size_t step = 0; step < steps; ++step) {
    if (!collective.await_staged(collective.peer(1), step)) return false;
    take(step);
    if (step + slots < steps) collective.publish(&Progress::staged, step + slots + 1);
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
inline Part part_of(std::size_t total, Chunks chunks, std::size_t step) noexcept {
  const std::size_t first = std::min(total, step * chunks.bytes);
  return {first, std::min(chunks.bytes, total - first)};
}

// An op that moves blocks: one of its buffers holds a block of every rank.
struct BlockMove {
  std::byte* output;
  const std::byte* input;
  Blocks blocks;
  int root = Collective::kEveryRank;
};

// Every rank puts its block into its entry; those that want them, all or the root, copy them out.
inline bool gather_inline(Collective& collective, const BlockMove& all) {
  const int rank = collective.rank();
  copy_bytes(collective.payload(rank), all.input, all.blocks.bytes(rank));
  if (!collective.enter()) return false;
  if (all.root != Collective::kEveryRank && rank != all.root) return true;
  copy_bytes(all.output + all.blocks.offset(rank), all.input, all.blocks.bytes(rank));
  for (const int peer : collective.peers())
    copy_bytes(all.output + all.blocks.offset(peer), collective.payload(peer),
               all.blocks.bytes(peer));
  return true;
}

// Data that goes one way: peers access the input of a rank that sends and the output of one that
// receives.
inline LocalBuffers one_way_buffers(bool sends, const ConstView& input, const View& output) {
  if (sends) return {.input = input.data, .input_bytes = input.bytes()};
  return {.output = output.data, .output_bytes = output.bytes()};
}

// Two ranks that stream results exchange blocks: one loop takes a chunk of the peer's to `taken`,
// stages a later one of `given` in its place, and copies `kept`, this rank's own block. `largest`:
// of the blocks, in bytes.
inline bool exchange_blocks(Collective& collective, const AlgorithmChoice& choice,
                            std::size_t largest, std::span<const std::byte> given,
                            std::span<std::byte> taken, const Copying& kept) {
  const int rank = collective.rank(), peer = collective.peer(1);
  Staging& staging = collective.staging();
  const Chunks chunks = staging.chunk(choice, largest, 2);
  const auto keep = [&](std::size_t step) -> Copying {
    const Part part = part_of(kept.bytes, chunks, step);
    return {kept.to + part.first, kept.from + part.first, part.bytes};
  };
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(given.size(), chunks, step);
    collective.copy_out(staging.exchange_slot(rank, chunks, step), given.data() + part.first,
                        part.bytes, choice.store);
    const Copying own = keep(step);
    collective.copy_out(own.to, own.from, own.bytes, choice.results);
  };
  const auto take = [&](std::size_t step) {
    const Part part = part_of(taken.size(), chunks, step);
    const Part next = part_of(given.size(), chunks, step + kSlots);
    std::byte* const slot = staging.exchange_slot(peer, chunks, step);
    collective.exchange_out({taken.data() + part.first, slot, part.bytes},
                            {slot, given.data() + next.first, next.bytes}, keep(step + kSlots));
  };
  return run_exchange(collective, chunks.count, kSlots, stage, take);
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
inline std::size_t scratch_block(const Collective& collective) noexcept {
  constexpr std::size_t kBlock = std::size_t{64} << 10;
  const auto peers = static_cast<std::size_t>(collective.size() - 1);
  return std::clamp(collective.team().layout().half_bytes() / peers / 64 * 64, std::size_t{64},
                    kBlock);
}

inline std::byte* bytes_of(const View& view) noexcept { return static_cast<std::byte*>(view.data); }
inline const std::byte* bytes_of(const ConstView& view) noexcept {
  return static_cast<const std::byte*>(view.data);
}

}}}  // namespace c10d::v0::native
