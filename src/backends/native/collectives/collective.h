// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels/reduce.h"
#include "src/backends/native/collectives/staging.h"
#include "src/backends/native/memory/buffer_location.h"
#include "src/backends/native/team/team.h"

namespace c10d { inline namespace v0 { namespace native {

struct Reducing {
  DType dtype = DType::f32;
  ReduceOp op;
};

// How the data of a collective travels, as far as this rank knows.
enum class Mode : std::uint8_t {
  staged,       // in the entries or the staging; the first slots are full on entry
  staged_late,  // through the staging; some ranks fill their first slot after they entered
  undecided,    // entering with registered memory, into which a peer may write already
  cma,          // direct: through the kernel
  mapped,       // direct: ranks read each other's memory in the heap
  pushed        // direct: ranks write into each other's memory in the heap
};
constexpr bool is_direct(Mode mode) noexcept { return mode >= Mode::cma; }

// One collective of a group as one rank runs it. Functions that return bool say whether to
// continue; after false, failure() says why not.
//
// The protocol. A rank announces its entry into epoch e by storing e in its Entry, and no rank
// passes enter() before all have. Hence, when this rank is past enter() of e, all ranks have
// finished e - 1; and before it announces e + 2, all have announced e + 1, that is, finished e. So
// what is announced or staged for e stays as it is until all ranks are done with it, with two
// copies of each place, chosen by the parity of the epoch, and nobody waits at the end of an op.
// What is staged before enter() needs no other flag. Later steps go through Progress.
class Collective {
 public:
  Collective(Team& team, const Call& call);
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  int rank() const noexcept { return team_.rank(); }
  int size() const noexcept { return team_.size(); }
  // The rank i places after this one: ranks start at different peers.
  int peer(int i) const noexcept {
    const int other = rank() + i;
    return other < size() ? other : other - size();
  }
  const std::vector<int>& peers() const noexcept { return team_.peers(); }
  Team& team() const noexcept { return team_; }
  const Call& call() const noexcept { return call_; }
  std::uint32_t epoch() const noexcept { return epoch_; }
  Mode mode() const noexcept { return mode_; }
  Staging& staging() noexcept { return staging_; }
  std::byte* payload(int rank) const noexcept { return entry(rank).payload; }
  BufferLocation location(int rank) const noexcept;
  std::uint64_t* counts(int rank) const noexcept {
    return team_.layout().counts(team_.base(), rank, parity_of(epoch_));
  }
  // Scratch, one pointer per rank.
  std::span<const std::byte*> sources() const noexcept { return team_.sources(); }

  const std::shared_ptr<const Failure>& failure() const noexcept { return failure_; }
  bool fail(Failure failure);
  // The same with a failure that the control plane knows already.
  bool fail_with(std::shared_ptr<const Failure> failure) noexcept;
  // False: the group is broken.
  bool check_group();

  // Announces this rank's call, waits for that of every other, and compares.
  bool enter();
  // The same for an op in which every rank stages only what it learns to stage by entering; others
  // may access its buffers.
  bool enter_unstaged(const LocalBuffers& buffers);
  bool entered() const noexcept { return entered_; }

  // How this call runs, the same on every rank; null when the group broke. A staged algorithm comes
  // back not entered, so that it can stage first, unless some rank's memory lies otherwise. A
  // direct one has entered: see DirectAccess.
  const AlgorithmChoice* choose(OpKind op, DType dtype, std::size_t bytes,
                                const LocalBuffers& buffers);
  // The same after enter_unstaged() with the same buffers.
  const AlgorithmChoice& choose_entered(OpKind op, DType dtype, std::size_t bytes);

  // Tells the peers that this rank needs their memory no more, and waits until they need its own no
  // more: the end of a direct algorithm in which every rank accesses that of all others.
  bool leave();
  // The end of the call, `ok` as far as this rank's algorithm knows. What it read from peers is
  // worth something only if no rank gave up meanwhile and took its memory back. After a failure,
  // returns once no peer writes into this rank's memory any more, or kGrace later.
  bool finish(bool ok);
  static constexpr std::chrono::milliseconds kGrace{100};

  // Like copy() and reduce() of all sources(); what they stream is out before the next flag.
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

  using Counter = Progress::Steps Progress::*;
  // The one place where progress is made visible: steps [0, done) of `counter` are over. A ring
  // waits until all earlier stores are out: between two chunks it is left to the next wait, or
  // finish().
  void publish(Counter counter, std::size_t done) noexcept {
    RankLines& own = team_.lines(rank());
    finish_streams();
    (own.progress.*counter).publish(epoch_, done);
    if (team_.oversubscribed() || is_direct(mode_))
      own.doorbell.ring();
    else
      ring_pending_ = true;
  }
  bool await(int peer, Counter counter, std::size_t done);
  bool await_all(Counter counter, std::size_t done);
  // Waits until ready(), for which `peer` rings. `phase` says what a call that timed out waited
  // for.
  template <class Ready>
  bool await_ready(int peer, Ready ready, const char* phase) {
    const WaitContext context{.policy = team_.policy(),
                              .control = team_.control(),
                              .deadline = call_.deadline,
                              .own = &team_.lines(rank()).doorbell,
                              .after_sleep = team_.after_sleep()};
    return settle(wait_until(context, team_.lines(peer).doorbell, ready), phase);
  }
  // Waits for the data of `step` in the staging of `peer`.
  bool await_staged(int peer, std::size_t step) {
    return (step == 0 && mode_ == Mode::staged) || await(peer, &Progress::staged, step + 1);
  }
  bool await_all_staged(std::size_t step) {
    return (step == 0 && mode_ == Mode::staged) || await_all(&Progress::staged, step + 1);
  }
  // Waits until this rank's slot for `step` is free: until `reader`, or every rank, is done with
  // it, as `counter` tells.
  static constexpr int kEveryRank = -1;
  bool await_free(std::size_t step, int reader, Counter counter = &Progress::consumed);

 private:
  Entry& entry(int rank) const noexcept { return team_.lines(rank).entries[parity_of(epoch_)]; }
  bool announce(AccessMode access);
  bool all_registered() const noexcept;
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
  Staging staging_;
  Mode mode_ = Mode::staged;
  bool entered_ = false;
  bool streamed_ = false;      // since the last flag
  bool ring_pending_ = false;  // a flag for which the doorbell was not rung yet
  std::shared_ptr<const Failure> failure_;
};

inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}}}  // namespace c10d::v0::native
