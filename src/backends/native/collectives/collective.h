// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "kernels/reduce.h"
#include "src/backends/native/memory/shared_copy.h"
#include "src/backends/native/team/team.h"

namespace c10d { inline namespace v0 { namespace native {

// Pieces in which data goes through staging: `bytes` each, a multiple of 64 (the last may be
// shorter), each in a slot of its own until kSlots are in use. The slots begin at `first`.
struct Pieces {
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::size_t first = 0;
};

// In whose staging a rank stages when all give and take. Two ranks change places from op to op of a
// parity: then each writes where it has read before, to lines that are in its own cache.
constexpr int place_of(int rank, int size, std::uint32_t epoch) noexcept {
  return size == 2 && (epoch & 2) != 0 ? 1 - rank : rank;
}

// Two ranks that fill each other's slots again change places each time around: see run_exchange().
constexpr int exchange_place(int place, std::size_t step, std::size_t slots) noexcept {
  return step / slots % 2 == 0 ? place : 1 - place;
}

// Memory of this rank that others may have to reach; null where it has none.
struct Exposed {
  const void* input = nullptr;
  std::size_t input_bytes = 0;
  const void* output = nullptr;
  std::size_t output_bytes = 0;
};

struct Reducing {
  DType dtype = DType::f32;
  ReduceOp op;
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
  ~Round();
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
    return staging(rank) + pieces.first + step % kSlots * pieces.bytes * width;
  }
  // The slot of `rank` in an op in which every rank stages and takes from all.
  std::byte* mutual_slot(int rank, Pieces pieces, std::size_t step,
                         std::size_t width = 1) const noexcept {
    return slot(place_of(rank, size(), epoch_), pieces, step, width);
  }
  // The same where they fill each other's slots again. A rank that has gone around an even number
  // of times read last where it had begun, so it begins the next op there, too.
  std::byte* exchange_slot(int rank, Pieces pieces, std::size_t step) const noexcept {
    const std::size_t times = (pieces.count + kSlots - 1) / kSlots;
    const int first = times % 2 == 0 ? rank : place_of(rank, size(), epoch_);
    return slot(exchange_place(first, step, kSlots), pieces, step);
  }
  std::uint64_t* counts(int rank) const noexcept {
    return team_.layout().counts(team_.base(), rank, parity_of(epoch_));
  }
  // Cuts `bytes` for slots that hold `width` pieces beside each other.
  Pieces cut(const Choice& choice, std::size_t bytes, std::size_t width = 1) const noexcept;
  // The same where some ranks only stage, as `stages` says of this one, and the others only take.
  // They begin elsewhere in the staging from op to op: a rank gets back what it used long ago at
  // twice the pace of what another has just read. Who stages has its lines of the next such op
  // fetched when this one ends.
  Pieces cut_one_way(const Choice& choice, std::size_t bytes, bool stages,
                     std::size_t width = 1) noexcept;
  // Scratch, one pointer per rank.
  std::span<const std::byte*> sources() const noexcept { return team_.sources(); }

  // Announces this rank's call, waits for that of every other, and compares.
  bool enter();
  // The same for an op in which every rank stages only what it learns to stage by entering; others
  // may reach its memory.
  bool enter_unstaged(const Exposed& exposed);
  bool entered() const noexcept { return entered_; }

  // How this call runs, the same on every rank; null when the group broke. A staged algorithm comes
  // back not entered, so that it can stage first, unless some rank's memory lies otherwise. A
  // direct one has entered: see `read`, `view` and `mapped`.
  const Choice* choose(OpKind op, DType dtype, std::size_t bytes, const Exposed& exposed);
  // The same after enter_unstaged() with the same memory.
  const Choice& choose_entered(OpKind op, DType dtype, std::size_t bytes);

  // A part of the memory that `peer` exposed to a direct algorithm: copied to `to`; where it can be
  // read, in `scratch` if it has to be copied (null: the group broke); where it is mapped, which it
  // always is for Algorithm::push.
  enum class Side : std::uint8_t { input, output };
  bool fetch(int peer, Side side, std::size_t offset, std::byte* to, std::size_t bytes,
             StorePolicy policy);
  // Where one rank fetches and the other would wait, both copy if the kernel must: the one that
  // fetches calls invite() before fetch() of the same block of the peer's input, the other help().
  void invite(int peer, std::byte* to, std::size_t bytes);
  bool help(int peer, const std::byte* from, std::size_t bytes);
  const std::byte* view(int peer, Side side, std::size_t offset, std::size_t bytes,
                        std::byte* scratch);
  std::byte* mapped(int peer, Side side) const;
  // Writes into the output that `peer` exposed, for Algorithm::push. Once the group is broken the
  // peer may have its memory back: no block is begun then.
  bool write_to_peer(int peer, std::size_t offset, const std::byte* from, std::size_t bytes,
                     StorePolicy policy);
  // Whether the group still stands; else failure() says why not.
  bool stands();
  // Tells the peers that this rank needs their memory no more, and waits until they need its own no
  // more: the end of a direct algorithm.
  bool leave();
  // The end of the call, `ok` as far as this rank's algorithm knows. What it read where it lies is
  // worth something only if no rank gave up meanwhile and took its memory back. After a failure,
  // returns once no peer writes into this rank's memory any more, or kGrace later.
  bool finish(bool ok);
  static constexpr std::chrono::milliseconds kGrace{100};

  // As copy() and reduce() of all sources(); what they stream is out before the next flag.
  void copy_out(std::byte* to, const std::byte* from, std::size_t bytes,
                StorePolicy policy) noexcept {
    streamed_ |= policy == StorePolicy::streaming;
    copy(to, from, bytes, policy);
  }
  void exchange_out(const Copying& taken, const Copying& refill, const Copying& kept) noexcept {
    streamed_ = true;
    copy_and_refill(taken, refill, kept);
  }
  void reduce_out(const Reducing& how, std::byte* out, std::size_t bytes, StorePolicy policy,
                  const Copying& refill = {});

  using Word = Progress::Steps Progress::*;
  // The one place where progress is made visible: steps [0, done) of `word` are over. A ring waits
  // until all earlier stores are out: between two pieces it is left to the next wait, or finish().
  void publish(Word word, std::size_t done) noexcept {
    RankLines& own = team_.lines(rank());
    finish_streams();
    (own.progress.*word).publish(epoch_, done);
    if (team_.oversubscribed() || direct_)
      own.doorbell.ring();
    else
      unrung_ = true;
  }
  bool await(int peer, Word word, std::size_t done);
  bool await_all(Word word, std::size_t done);
  // Waits for the data of `step` in the staging of `peer`.
  bool await_staged(int peer, std::size_t step) {
    return (step == 0 && !late_) || await(peer, &Progress::staged, step + 1);
  }
  bool await_all_staged(std::size_t step) {
    return (step == 0 && !late_) || await_all(&Progress::staged, step + 1);
  }
  // Waits until this rank's slot for `step` is free: until `reader`, or every rank, is done with
  // it, as `word` tells.
  static constexpr int kEveryRank = -1;
  bool await_free(std::size_t step, int reader, Word word = &Progress::consumed);

 private:
  Entry& entry(int rank) const noexcept { return team_.lines(rank).entries[parity_of(epoch_)]; }
  bool announce(Access access);
  Access locate(const Exposed& exposed, Reach& reach) const;
  bool all_registered() const noexcept;
  Reach reach(int rank) const noexcept;
  bool read(int peer, Side side, std::size_t offset, std::byte* to, std::size_t bytes);
  bool lost(int peer, int error);
  bool shares(std::size_t bytes) const noexcept;
  bool fetch_shared(int peer, Side side, std::size_t offset, std::byte* to);
  void await_writers();
  // Streaming stores become visible in any order: before the flag that tells of them, all must be.
  void finish_streams() noexcept {
    if (streamed_) stream_fence();
    streamed_ = false;
  }
  // Waits until `ready(peer)` of every other rank.
  template <class Ready>
  bool await_peers(Ready ready, const char* phase);
  bool settle(WaitResult result, const char* phase) {
    return result == WaitResult::ready || give_up(result, phase);
  }
  bool give_up(WaitResult result, const char* phase);
  bool disagree();
  void prepare_next() noexcept;

  Team& team_;
  const Call& call_;
  const std::uint32_t epoch_;
  bool entered_ = false;
  bool late_ = false;      // some ranks stage their first piece after they entered
  bool mapped_ = false;    // the direct algorithm goes through the heap, not through the kernel
  bool direct_ = false;    // peers' memory is reached where it lies
  bool pushed_ = false;    // peers write into this rank's memory, and it into theirs
  bool streamed_ = false;  // since the last flag
  Part ahead_;             // of the own staging, for the next op
  bool unrung_ = false;    // a flag for which the doorbell was not rung yet
  std::optional<Taker> taker_;  // of a block on its way to this rank
  std::shared_ptr<const Failure> failure_;
};

inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}}}  // namespace c10d::v0::native
