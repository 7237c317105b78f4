// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "src/backends/native/team.h"

namespace c10d::inline v0::native {

// Pieces in which data goes through staging: `bytes` each, a multiple of 64 (the last may be
// shorter), each in a slot of its own until kSlots are in use.
struct Pieces {
  std::size_t bytes = 0;
  std::size_t count = 0;
};

// One collective of a group as one rank runs it. Functions that return bool say whether to go on;
// after false, failure() says why not.
//
// The protocol. A rank announces its entry into epoch e by storing e in its Entry, and no rank
// passes enter() before all have. Hence, when this rank is past enter() of e, all ranks have
// finished e - 1; and before it announces e + 2, all have announced e + 1, that is, finished e. So
// what is announced or staged for e stays as it is until all ranks are done with it, with two
// copies of each place, chosen by the parity of the epoch, and nobody waits at the end of an op.
// What is staged before enter() needs no other flag. Later steps go through Progress.
class Round {
 public:
  Round(Team& team, const Call& call);
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  int rank() const noexcept { return team_.rank(); }
  int size() const noexcept { return team_.size(); }
  // The rank i places after this one: ranks start at different peers.
  int peer(int i) const noexcept {
    const int other = rank() + i;
    return other < size() ? other : other - size();
  }
  Team& team() const noexcept { return team_; }
  const Call& call() const noexcept { return call_; }
  const std::shared_ptr<const Failure>& failure() const noexcept { return failure_; }
  bool fail(Failure failure);

  std::byte* payload(int rank) const noexcept { return entry(rank).payload; }
  std::byte* staging(int rank) const noexcept {
    return team_.layout().staging(team_.base(), rank, parity_of(epoch_));
  }
  std::byte* slot(int rank, Pieces pieces, std::size_t step, std::size_t width = 1) const noexcept {
    return staging(rank) + step % kSlots * pieces.bytes * width;
  }
  std::uint64_t* counts(int rank) const noexcept {
    return team_.layout().counts(team_.base(), rank, parity_of(epoch_));
  }
  // Cuts `bytes` for slots that hold `width` pieces beside each other.
  Pieces cut(std::size_t bytes, std::size_t width = 1) const noexcept;
  // Scratch, one pointer per rank.
  std::span<const std::byte*> sources() const noexcept { return team_.sources(); }

  // Announces this rank's call, waits for that of every other, and compares.
  bool enter();
  // The same for a rank that has staged nothing because its memory may be reached directly.
  bool enter(const Reach& reach);
  // The same for an op in which every rank stages only what it learns to stage by entering.
  bool enter_unstaged();
  bool entered() const noexcept { return entered_; }
  // Where the memory of `rank` lies, if it said so in its entry.
  std::optional<Reach> reach(int rank) const noexcept;

  using Word = Progress::Steps Progress::*;
  // The one place where progress is made visible: steps [0, done) of `word` are over.
  void publish(Word word, std::size_t done) noexcept {
    RankLines& own = team_.lines(rank());
    (own.progress.*word).publish(epoch_, done);
    own.bell.ring();
  }
  bool await(int peer, Word word, std::size_t done);
  bool await_all(Word word, std::size_t done);
  // Waits for the data of `step` in the staging of `peer`.
  bool await_staged(int peer, std::size_t step) {
    return (step == 0 && !late_) || await(peer, &Progress::staged, step + 1);
  }
  // Waits until this rank's slot for `step` is free: until `reader`, or every rank, is done with
  // it.
  static constexpr int kEveryRank = -1;
  bool await_free(std::size_t step, int reader);

 private:
  Entry& entry(int rank) const noexcept { return team_.lines(rank).entries[parity_of(epoch_)]; }
  bool announce(std::uint32_t registered);
  bool settle(WaitResult result, const char* phase);
  bool disagree();

  Team& team_;
  const Call& call_;
  const std::uint32_t epoch_;
  bool entered_ = false;
  bool late_ = false;  // some ranks stage their first piece after they entered
  std::shared_ptr<const Failure> failure_;
};

inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace c10d::inline v0::native
