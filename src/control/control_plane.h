// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/capability.h"
#include "c10d/spi/control.h"
#include "src/base/mutex.h"
#include "src/net/shared_memory.h"
#include "src/recorder/flight_recorder.h"
#include "src/recorder/rank_block.h"

namespace c10d { inline namespace v0 {

struct ControlOptions {
  int rank = 0;
  int size = 1;
  std::string group;
  std::vector<Member> members;
  std::shared_ptr<Store> store;  // keys of this group only
  std::string token;
  Deadline deadline{};  // until all ranks are in
  // Of the group that this one is a part of, or null: until all ranks are in its failure is ours.
  Control* parent = nullptr;
  std::vector<int> parent_ranks;  // there, by rank
  // Whether the group goes on when one of several networks is cut: its backend does.
  bool outlives_networks = false;
};

// The control plane of one group on one rank: Control for the backend, and this for the funnel and
// the monitor.
class ControlPlane : public Control {
 public:
  // The recorder and counters of this rank.
  RankBlock& own_block() noexcept { return own_; }
  // Of snapshot.h.
  std::span<const std::byte> image() const noexcept { return {mapping_->data(), mapping_->size()}; }

  // The part of announce() that only writes to memory, if there is one. agree() does the rest.
  virtual void announce_ahead(const Op&, std::uint64_t /*sequence*/, const Signature&,
                              std::uint64_t /*hash*/) noexcept {}

  // Of every collective of a group with a GPU, in order: what is enqueued there is compared behind.
  // Waits while this rank is too far ahead. The failure if it did not come to that.
  virtual std::shared_ptr<const Failure> announce_in_order(const Call& call,
                                                           const Signature& signature) = 0;
  // Orderly end: peers that still wait for this rank learn that it left. Idempotent.
  virtual void leave() noexcept = 0;
  // The peers that ended in good order. Throws what the store throws.
  virtual std::vector<int> ranks_that_left() = 0;
  // Whether `peer` is known to be one of them: asks nobody.
  virtual bool has_left(int peer) const noexcept = 0;
  // "all_reduce #57, running for 0.3 s", or empty where a peer's record cannot be read.
  virtual std::string last_op_of(int /*peer*/) const { return {}; }
  // Breaks the group if `peer` has left it: what is sent to it now, no rank receives.
  void check_receiver(int peer);
  // That `peer` left while this rank waits for it in `where`.
  Failure left(int peer, std::string_view where) const;
  // As fail(), for abort(): returns at once, whatever it takes to tell the peers.
  virtual std::shared_ptr<const Failure> revoke(Failure failure) {
    return fail(std::move(failure));
  }
  // The monitor thread calls it every kMonitorPeriod: looks for dead peers and for late ops. That
  // thread serves all groups, so what has to wait, for a store say, is left to another thread.
  virtual void tick() = 0;
  // After the last tick: returns once what ticks have left to other threads is done.
  virtual void end_polls() noexcept {}
  // Called once by the monitor thread before the first tick, and after the last.
  virtual void hold_liveness() {}
  virtual void release_liveness() noexcept {}

  // `end_ops` ends the ops of this rank that wait inside a wrapped library. The monitor thread
  // calls it once the group is broken, never after unwatch().
  void on_broken(std::function<void()> end_ops);
  void end_ops_if_broken();
  // `look` is called by each tick of a group over several hosts.
  void on_tick(std::function<void()> look);
  // Writes the record to where C10D_RECORD_DIR says, once, if the group is broken.
  void keep_record_if_broken() noexcept;

  // The bookkeeping of an op of this rank that is done. Breaks the group when it failed, and
  // returns what its caller gets.
  std::shared_ptr<const Failure> end_op(OpKind kind, std::uint64_t sequence, std::uint64_t record,
                                        const Failure* failure) noexcept;
  void finished(OpKind kind, std::uint64_t sequence, std::uint64_t record,
                const Failure* failure) noexcept final;
  // Ops of this rank that are enqueued on its GPU and not over.
  void begin_on_gpu() noexcept { on_gpu_.fetch_add(1, std::memory_order_relaxed); }
  void end_on_gpu() noexcept { on_gpu_.fetch_sub(1, std::memory_order_release); }
  int ops_on_gpu() const noexcept { return on_gpu_.load(std::memory_order_acquire); }
  // `tell` gets the failure of an enqueued op that has no Work. Called once, before any op.
  void on_unobserved(std::function<void(const Failure&)> tell) { tell_ = std::move(tell); }
  Agreement poll_message(OpKind kind, std::uint64_t sequence) final;
  void fail_overdue(OpKind kind, std::uint64_t sequence, std::string_view phase) final;
  std::shared_ptr<const Failure> failure() override;
  bool broken() const noexcept override {
    return header_.state.load(std::memory_order_acquire) != GroupHeader::intact;
  }
  Failure timed_out(const Call& call, std::string_view phase) final {
    return late(signature_of(call.op, size_), call.sequence, phase);
  }
  std::shared_ptr<const Failure> resolve_cause(Failure otherwise, Duration patience) override;

 protected:
  // In memory of memory_for() that holds the blocks of the ranks from `first_rank` on, this one
  // among them.
  ControlPlane(const ControlOptions& options, std::shared_ptr<SharedMapping> mapping,
               int first_rank);
  bool peer_left(const Failure& lost);
  // Breaks the group if a peer is known to be gone: what the monitor would find by and by.
  virtual void look_for_evidence() {}
  std::string name_of(int rank) const;
  std::string names_of(const std::vector<int>& ranks) const;
  Failure failure_about(int rank, Code code, std::string message) const;
  // As timed_out().
  virtual Failure late(const Signature& signature, std::uint64_t sequence,
                       std::string_view phase) = 0;
  // For the monitor, every `ticks` ticks. A wrapped library may know no deadline: an op that it
  // keeps past the op's own breaks the group, and one that it still holds when the group is broken
  // is logged.
  void watch_library(int ticks);
  // See on_tick().
  void look_after_backend();
  // For the monitor: warns of the oldest op of this rank that runs for kLateOp, once with the ranks
  // that `behind` names as those that have not come as far, and once with each that is silent.
  // Warns again of an op that runs for kReminder. A message may wait that long for its other end,
  // unless that is silent.
  void warn_of_late_op(const std::function<std::vector<int>(const Recorded&)>& behind);
  // Whether nothing was heard for kSilence of a rank that has not left.
  virtual bool is_silent(int rank) const noexcept = 0;
  // When another rank gave up a wait that all ranks pass or none: its failure, which it is about to
  // report. If it does not, no rank is named: nothing says which it was, or for whom it waited.
  std::shared_ptr<const Failure> failure_of_another();
  // `odd` is this rank or the peer; `others` are the ranks that are known to agree against it.
  Failure mismatch(const Signature& mine, int peer, const Signature& theirs, int odd,
                   const std::vector<int>& others, std::uint64_t sequence,
                   std::uint64_t their_sequence) const;
  // The failure of a call whose deadline passed in `phase` because of the ranks in `missing`.
  // `about` may add what is known of one of them.
  Failure deadline_passed(const Signature& signature, std::uint64_t sequence,
                          std::string_view phase, const std::vector<int>& missing,
                          const std::function<std::string(int)>& about = {}) const;
  Failure did_not_reach_barrier(const std::vector<int>& missing, std::uint64_t round) const;
  Failure counts_mismatch(std::uint64_t sequence, int sender, int receiver, std::uint64_t expected,
                          std::uint64_t sent) const;
  // The same where nobody knows which pair it is.
  Failure counts_do_not_fit(std::uint64_t sequence) const;
  // Breaks the group: `peer` made another call than this rank. The lesser of the two sides is odd.
  void fail_with_mismatch(int peer, std::uint64_t sequence, const Signature& mine,
                          const Signature& theirs, const std::vector<int>& with_me,
                          const std::vector<int>& with_peer);
  template <class Is>
  std::vector<int> ranks_that(Is&& is) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank)
      if (is(rank)) ranks.push_back(rank);
    return ranks;
  }

  // Calls that are compared behind (compare_behind.cpp). What is known of the one of a rank:
  virtual const AnnouncedSlot& announced(int rank, std::uint64_t sequence) const noexcept = 0;
  // The calls of a rank that are known, oldest first. Of another rank its messages are enough.
  virtual void visit_calls(int rank, const std::function<void(const Recorded&)>& visit) = 0;
  // Those of `rank` shall be known soon: here, or, of this rank, to the others.
  virtual void want_calls(int /*rank*/) noexcept {}
  // In the slot of this rank, which is free.
  void write_announced(const Call& call, const Signature& signature) noexcept;
  // The last call that all ranks have announced, if it and all behind `compared` are equal on all.
  // Nothing if one is not: that breaks the group.
  std::optional<std::uint64_t> last_equal(std::uint64_t compared);

  const int rank_;
  const int size_;
  const std::string group_;
  const std::vector<Member> members_;
  const std::shared_ptr<SharedMapping> mapping_;
  GroupHeader& header_;
  RankBlock& own_;

 private:
  std::atomic<int> on_gpu_ = 0;
  std::function<void(const Failure&)> tell_;
  Mutex record_mutex_;
  bool record_kept_ C10D_GUARDED_BY(record_mutex_) = false;
  // For the monitor thread only:
  std::optional<Recorded> first_due() const;
  void break_if_overdue(int ticks);
  void warn_of_held_op(int ticks);
  struct {
    std::pair<OpKind, std::uint64_t> op{};
    std::int64_t when_ns = 0;
    std::vector<int> named{};  // ranks
  } warned_;
  int ticks_overdue_ = 0;
  int ticks_held_ = 0;
  bool is_equal(std::uint64_t sequence);
  template <class Is>
  std::optional<Recorded> find_message(int rank, const Is& is);
  // For all threads:
  Mutex mutex_;
  std::function<void()> end_ops_ C10D_GUARDED_BY(mutex_);
  std::function<void()> look_ C10D_GUARDED_BY(mutex_);
  std::shared_ptr<const Failure> cause_
      C10D_GUARDED_BY(mutex_);  // read once, then the same for all
};

// Codes after which a group stays intact.
bool leaves_group_intact(Code code) noexcept;

// New memory with the blocks of `ranks` ranks, and `more` bytes of the caller's behind them.
std::shared_ptr<SharedMapping> memory_for(const ControlOptions& options, int first_rank, int ranks,
                                          std::size_t more = 0);

inline constexpr std::chrono::milliseconds kMonitorPeriod{20};
inline constexpr std::chrono::seconds kLateOp{1};     // a running op is warned about after this
inline constexpr std::chrono::seconds kReminder{10};  // and every so often
inline constexpr std::chrono::seconds kSilence{1};    // of a rank that runs: much less

// Has the process's one monitor thread tick `plane` until unwatch(). watch() returns once the
// thread does, unwatch() once no thread of the library uses the plane.
void watch(const std::shared_ptr<ControlPlane>& plane);
void unwatch(ControlPlane& plane) noexcept;

}}  // namespace c10d::v0
