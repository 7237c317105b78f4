// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "c10d/collective.h"
#include "c10d/error.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

// One call that a backend is to run: arguments checked, sequence number taken, deadline fixed. A
// backend that finishes the call after launch() has returned copies what it needs: the memory of
// the views stays valid until the call is done, the spans of counts do not.
struct Call {
  const Op& op;             // which op, with its arguments
  std::uint64_t sequence;   // its number in the group; collectives and messages count separately
  std::uint64_t signature;  // hash of all that ranks must agree on
  Deadline deadline;        // when it fails with timed_out
  bool async;               // whether launch() returns at once
  std::uint64_t record;     // its entry in the flight recorder, for Control
  Device device{};          // where its buffers lie; of a barrier with a stream: the group's GPU
  CudaStream stream = nullptr;  // that orders it on a GPU; null: the legacy default stream
  bool captured = false;        // whether the stream is captured into a CUDA graph
  // What this rank gives to all others with agree(): as many bytes on each, on all together at most
  // Control::most_carried().
  std::span<const std::byte> carried{};
};

// The control plane of a group, as a backend uses it: which rank entered which call, which rank
// died, and the one failure that broke the group. Every member may be called from any thread.
class C10D_API Control {
 public:
  virtual ~Control();
  // Result of poll_agreement().
  enum class Agreement {
    pending,  // ranks are missing: poll again
    agreed,   // all ranks entered the same call
    failed    // the group is broken: see failure()
  };
  // How a thread waits for other ranks.
  enum class Waiting {
    spin,  // spins where every rank has a CPU of its own
    sleep  // sleeps soon: threads of the wrapped library need the CPU
  };

  // Says that this rank entered `call`, then waits until every rank of the group has entered a call
  // with the same sequence number and signature. For all_to_all_v, input and output counts of each
  // pair of ranks must fit, too. Either all ranks continue into the call or none does. Collectives
  // only. Null: the ranks agree. Else the failure that broke the group: mismatch, which shows both
  // calls, timed_out, peer_died, revoked.
  virtual std::shared_ptr<const Failure> agree(const Call& call, Waiting waiting) = 0;
  // Waits until all ranks have called barrier() as often as this one. Either all ranks pass or none
  // does: a rank that gives up, at the deadline or because the group broke, gives up for all. Null:
  // all ranks passed. Else the failure, which names every rank that did not arrive.
  virtual std::shared_ptr<const Failure> barrier(Deadline deadline) = 0;
  // The first half of agree() without waiting: says that this rank entered `call`. Once per call.
  virtual void announce(const Call& call) = 0;
  // The second half: whether all ranks have entered the call by now. A rank that stops polling
  // gives up for itself alone, so an op that was agreed on in this way must end when the group
  // breaks.
  virtual Agreement poll_agreement(const Call& call) = 0;

  // How many bytes of all ranks together go with the agreement on a call; 0: none. The same on
  // every rank.
  virtual std::size_t most_carried() const noexcept { return 0; }
  // What a rank carried with the last call that this rank has agreed on: as much as this one. Until
  // this rank enters its next call.
  virtual std::span<const std::byte> carried(int /*rank*/) { return {}; }

  // Collectives on a GPU are compared after they were enqueued. Whether all ranks have called the
  // collective `sequence`, and all before it, with the same signature. An enqueued op is not over
  // before. A difference breaks the group.
  virtual Agreement poll_enqueued(std::uint64_t sequence) = 0;
  // Whether the two ends of a send or recv that launch() enqueued fit: same dtype, tag and count.
  // Pending while the peer is not known to have called its end.
  virtual Agreement poll_message(OpKind kind, std::uint64_t sequence) = 0;
  // The end of an op that launch() enqueued on a GPU: from then on it counts as finished, in the
  // record and in what is said of ranks that are late. A failure breaks the group. Once for each
  // such op; allocates nothing if it went well. `kind`, `sequence` and `record` are those of its
  // call.
  virtual void finished(OpKind kind, std::uint64_t sequence, std::uint64_t record,
                        const Failure* failure) noexcept = 0;

  // The first failure of the group on any rank, or null. Cheap: poll it in every wait.
  virtual std::shared_ptr<const Failure> failure() = 0;
  // Whether the group is broken. Cheaper than failure().
  virtual bool broken() const noexcept = 0;
  // Breaks the group on every rank. The first failure counts: returns that one.
  virtual std::shared_ptr<const Failure> fail(Failure failure) = 0;
  // A failure for a deadline that passed in `phase`. It names the ranks that have not entered this
  // call yet.
  virtual Failure timed_out(const Call& call, std::string_view phase) = 0;
  // Breaks the group with such a failure for an enqueued op that is not finished(). Does nothing
  // if it is.
  virtual void fail_overdue(OpKind kind, std::uint64_t sequence, std::string_view phase) = 0;
  // Waits up to `patience` to learn why a peer stopped answering, since a death is noticed moments
  // later. Then breaks the group with that, or with `otherwise`, and returns what broke it.
  virtual std::shared_ptr<const Failure> resolve_cause(Failure otherwise, Duration patience) = 0;
};

}}  // namespace c10d::v0
