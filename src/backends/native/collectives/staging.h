// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backends/native/memory/shared_copy.h"
#include "src/backends/native/plan/algorithm_plan.h"
#include "src/backends/native/team/team.h"

namespace c10d { inline namespace v0 { namespace native {

// How data is cut for staging: chunks of `bytes` each, a multiple of 64 (the last may be shorter).
// Each goes into a slot of its own until kSlots are in use. The slots begin at `first`.
struct Chunks {
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::size_t first = 0;
};

// The rank in whose staging `rank` stages when all ranks send and receive. Two ranks swap places
// from op to op of a parity: then each writes where it has read before, to lines that are in its
// own cache.
constexpr int place_of(int rank, int size, std::uint32_t epoch) noexcept {
  return size == 2 && (epoch & 2) != 0 ? 1 - rank : rank;
}

// Two ranks that refill each other's slots swap places each time around: see run_exchange().
constexpr int exchange_place(int place, std::size_t step, std::size_t slots) noexcept {
  return step / slots % 2 == 0 ? place : 1 - place;
}

// Where the ranks of one collective stage their data, in the half of their staging that the epoch's
// parity selects. Holds addresses only: the flags are Collective's.
class Staging {
 public:
  Staging(const Team& team, std::uint32_t epoch) noexcept : team_(team), epoch_(epoch) {}

  // The whole half of `rank`'s staging.
  std::byte* of(int rank) const noexcept { return half(rank, epoch_); }
  std::byte* slot(int rank, Chunks chunks, std::size_t step, std::size_t width = 1) const noexcept {
    return of(rank) + chunks.first + step % kSlots * chunks.bytes * width;
  }
  // The slot of `rank` in an op in which every rank stages, and reads from all others.
  std::byte* mutual_slot(int rank, Chunks chunks, std::size_t step,
                         std::size_t width = 1) const noexcept {
    return slot(place_of(rank, team_.size(), epoch_), chunks, step, width);
  }
  // The same where two ranks refill each other's slots. A rank that has gone around an even number
  // of times read last where it had begun, so it begins the next op there, too.
  std::byte* exchange_slot(int rank, Chunks chunks, std::size_t step) const noexcept {
    const std::size_t times = (chunks.count + kSlots - 1) / kSlots;
    const int first = times % 2 == 0 ? rank : place_of(rank, team_.size(), epoch_);
    return slot(exchange_place(first, step, kSlots), chunks, step);
  }

  // Cuts `bytes` into chunks for slots that hold `width` of them side by side.
  Chunks chunk(const AlgorithmChoice& choice, std::size_t bytes,
               std::size_t width = 1) const noexcept;
  // The same where some ranks only stage, as `stages` says of this one, and the others only read.
  // Each op begins at another place: lines that this rank used long ago come back twice as fast as
  // lines that another rank has just read. A rank that stages has prefetch_next() fetch its lines
  // of the next such op.
  Chunks chunk_one_way(const AlgorithmChoice& choice, std::size_t bytes, bool stages,
                       std::size_t width = 1) noexcept;
  void prefetch_next() const noexcept {
    if (ahead_.bytes != 0)
      fetch_for_writing(half(team_.rank(), epoch_ + 1) + ahead_.first, ahead_.bytes);
  }

 private:
  std::byte* half(int rank, std::uint32_t epoch) const noexcept {
    return team_.layout().staging(team_.base(), rank, parity_of(epoch));
  }

  const Team& team_;
  const std::uint32_t epoch_;
  Part ahead_;  // of this rank's staging, for the next op
};

}}}  // namespace c10d::v0::native
