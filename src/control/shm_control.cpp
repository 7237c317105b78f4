// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/shm_control.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/members.h"
#include "src/control/group_formation.h"
#include "src/net/shared_memory.h"
#include "src/recorder/flight_recorder.h"
#include "src/sync/wait.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;

// For waits beside threads that need the CPU, or that are long: a few yields, then sleep.
constexpr WaitPolicy kPatient{.yields = 16};

// Behind the blocks: per rank two rows of input counts, by parity of the sequence.
std::size_t counts_bytes(int size) noexcept {
  return 2 * static_cast<std::size_t>(size) * static_cast<std::size_t>(size) *
         sizeof(std::uint64_t);
}

class ShmControl final : public ControlPlane {
 public:
  ShmControl(const ControlOptions& options, std::shared_ptr<SharedMapping> mapping)
      : ControlPlane(options, std::move(mapping), 0),
        blocks_(blocks_of(header_)),
        counts_(reinterpret_cast<std::uint64_t*>(blocks_ + size_)),
        policy_(wait_policy(options.size, allowed_cpus())) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&own_.alive, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  // The mutex is not destroyed: a peer may be trying it, and its memory goes with the mapping.
  ~ShmControl() override { ShmControl::leave(); }

  // The second half of formation, once the monitor holds our liveness lock. Rank 0 hands out the
  // memory here: it is there itself, so that the others wait for those that are not.
  void join(const ControlOptions& options, GroupFormation& formation) {
    own_.presence.store(Presence::joined, kRelease);
    own_.doorbell.ring();
    if (rank_ == 0) serve_blocks(options, formation);
    const Deadline deadline = options.deadline;
    for (int peer = 0; peer < size_; ++peer) {
      while (!has_joined(peer)) {
        const auto now = std::chrono::steady_clock::now();
        const Deadline look = std::min<Deadline>(deadline, now + kJoinLook);
        const WaitResult result = wait_for(peer, kPatient, look, [&] { return has_joined(peer); });
        if (result == WaitResult::broken) throw_failure(*failure());
        if (result == WaitResult::ready) break;
        if (const auto cause = formation.failure()) throw_failure(*cause);
        if (now >= deadline)
          throw_failure(formation.late(ranks_that([&](int rank) { return !has_joined(rank); })));
      }
    }
  }

  void announce_ahead(const Op& op, std::uint64_t sequence, const Signature& signature,
                      std::uint64_t hash) noexcept override;
  std::shared_ptr<const Failure> agree(const Call& call, Waiting waiting) override;
  void announce(const Call& call) override;
  Agreement poll_agreement(const Call& call) override;
  std::shared_ptr<const Failure> announce_in_order(const Call& call,
                                                   const Signature& signature) override;
  Agreement poll_enqueued(std::uint64_t sequence) override;
  std::shared_ptr<const Failure> fail(Failure failure) override;
  std::shared_ptr<const Failure> barrier(Deadline deadline) override;

  // A rank that leaves because another one died reports that first, or the others would name the
  // rank that left.
  void leave() noexcept override {
    if (own_.presence.load(kRelaxed) == Presence::joined && !broken()) look_for_evidence();
    Presence expected = Presence::joined;
    own_.presence.compare_exchange_strong(expected, Presence::left);
    own_.doorbell.ring();
  }
  bool has_left(int peer) const noexcept override;
  std::string last_op_of(int peer) const override { return last_op(blocks_[peer], steady_ns()); }
  std::vector<int> ranks_that_left() override {
    return ranks_that([this](int rank) { return rank != rank_ && has_left(rank); });
  }
  // Free until we join: peers look at it only then. Held beside every lock that the monitor takes
  // later, it must not be waited for.
  void hold_liveness() override { static_cast<void>(pthread_mutex_trylock(&own_.alive)); }
  void release_liveness() noexcept override { pthread_mutex_unlock(&own_.alive); }
  void tick() override;
  void look_for_evidence() override;

 private:
  Failure late(const Signature& signature, std::uint64_t sequence, std::string_view phase) override;
  void serve_blocks(const ControlOptions& options, GroupFormation& formation);
  std::uint64_t* counts(int rank, std::uint64_t sequence) const noexcept {
    return counts_ +
           (static_cast<std::size_t>(rank) * 2 + sequence % 2) * static_cast<std::size_t>(size_);
  }
  void visit_calls(int rank, const std::function<void(const Recorded&)>& visit) override {
    visit_records(blocks_[rank], visit);
  }
  const AnnouncedSlot& announced(int rank, std::uint64_t sequence) const noexcept override {
    return blocks_[rank].announced[sequence % kAnnounced];
  }
  CallSlot& slot(int rank, std::uint64_t sequence) const noexcept {
    return blocks_[rank].calls[sequence % 2];
  }
  // Returns when `ready()`, which `peer` makes so.
  template <class Ready>
  WaitResult wait_for(int peer, const WaitPolicy& policy, Deadline deadline, Ready&& ready) {
    return wait_until(WaitContext{policy, *this, deadline, &own_.doorbell}, blocks_[peer].doorbell,
                      ready);
  }
  // Null when all ranks enter. `own()` makes the failure when this rank gave up.
  template <class Own>
  std::shared_ptr<const Failure> failure_after(Entry entry, const Own& own) {
    if (entry == Entry::goes) return nullptr;
    if (entry == Entry::broken) return failure();
    return entry == Entry::given_up ? failure_of_another() : fail(own());
  }
  class Ranks;
  class RanksOfCall;
  void write_call(const Op& op, std::uint64_t sequence, const Signature& signature,
                  std::uint64_t hash) noexcept;
  // Whether `peer` is in a send to this rank, and in no recv that may be from it.
  bool only_sends_to_us(int peer) const;
  // Of ranks that have not left a call, the one that does not run, if any.
  int silent_one(const std::vector<int>& ranks) const noexcept;
  bool is_silent(int rank) const noexcept override;
  // Breaks the group when `peer`, which has entered the call, entered another one.
  bool matches(const Call& call, int peer);
  // The calls that all ranks have announced since the last time.
  void compare_announced();
  // The ranks that have entered the call with the signature of `rank`, ascending.
  std::vector<int> agreeing_with(int rank, std::uint64_t sequence) const;
  bool is_gone(RankBlock& block) const noexcept;
  void check_peer(int peer);
  bool is_behind(int peer, const Recorded& record) const noexcept;
  bool has_joined(int peer) const noexcept {
    return blocks_[peer].presence.load(kAcquire) != Presence::absent;
  }
  bool all_others_left() const noexcept;
  void fail_if_it_waits_for_a_rank_that_left(const Recorded& record, std::int64_t now);
  void check_running_ops();

  RankBlock* const blocks_;
  std::uint64_t* const counts_;
  const WaitPolicy policy_;
  Mutex compare_mutex_;                  // of the threads of this rank that compare
  std::atomic<bool> announces_ = false;  // calls in order, to be compared behind
  std::int64_t last_tick_ns_ = 0;        // the one before; for the monitor
};

// Of agreement.h: this rank's view of a barrier.
class ShmControl::Ranks {
 public:
  Ranks(ShmControl& control, Gate gate, const WaitPolicy& policy, Deadline deadline)
      : control_(control),
        gate_(static_cast<std::size_t>(gate)),
        policy_(policy),
        deadline_(deadline) {}

  int rank() const noexcept { return control_.rank_; }
  int size() const noexcept { return control_.size_; }
  bool broken() const noexcept { return control_.broken(); }
  void ring() const noexcept { control_.own_.doorbell.ring(); }
  BasicGate<HostMemory>& gate() const noexcept { return control_.header_.gates[gate_]; }
  std::atomic<std::uint64_t>& gone(int rank) const noexcept {
    return control_.blocks_[rank].gone[gate_];
  }
  std::atomic<std::uint64_t>& came(int rank) const noexcept {
    return control_.blocks_[rank].barriers;
  }
  bool has_left(int rank) const noexcept { return control_.has_left(rank); }
  template <class Ready>
  WaitResult wait(int peer, Ready&& ready) const {
    return control_.wait_for(peer, policy_, deadline_, ready);
  }

 protected:
  ShmControl& control_;

 private:
  const std::size_t gate_;
  const WaitPolicy& policy_;
  const Deadline deadline_;
};

// And of a call.
class ShmControl::RanksOfCall : public Ranks {
 public:
  RanksOfCall(ShmControl& control, const Call& call, const WaitPolicy& policy)
      : Ranks(control, Gate::calls, policy, call.deadline), call_(call) {}

  CallSlot& slot(int rank) const noexcept { return control_.slot(rank, call_.sequence); }
  void write_call() const noexcept {
    control_.write_call(call_.op, call_.sequence, signature_of(call_.op, size()), call_.signature);
  }
  bool matches(int peer) const { return control_.matches(call_, peer); }

 private:
  const Call& call_;
};

void ShmControl::announce(const Call& call) {
  RanksOfCall ranks(*this, call, policy_);
  announce_call(ranks, call.sequence);
  ranks.ring();
}

void ShmControl::announce_ahead(const Op& op, std::uint64_t sequence, const Signature& signature,
                                std::uint64_t hash) noexcept {
  struct Ahead {
    ShmControl& control;
    const Op& op;
    const std::uint64_t sequence;
    const Signature& signature;
    const std::uint64_t hash;
    int rank() const noexcept { return control.rank_; }
    bool broken() const noexcept { return control.broken(); }
    CallSlot& slot(int rank) const noexcept { return control.slot(rank, sequence); }
    void write_call() const noexcept { control.write_call(op, sequence, signature, hash); }
  } ahead{*this, op, sequence, signature, hash};
  announce_call(ahead, sequence);
}

void ShmControl::write_call(const Op& op, std::uint64_t sequence, const Signature& signature,
                            std::uint64_t hash) noexcept {
  CallSlot& mine = slot(rank_, sequence);
  mine.signature = signature;
  mine.hash = hash;
  if (const auto* exchange = std::get_if<AllToAllV>(&op))
    std::copy(exchange->input_counts.begin(), exchange->input_counts.end(),
              counts(rank_, sequence));
}

std::vector<int> ShmControl::agreeing_with(int rank, std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (int other = 0; other < size_; ++other) {
    const CallSlot& theirs = slot(other, sequence);
    if (theirs.sequence.load(kAcquire) == sequence && theirs.hash == slot(rank, sequence).hash)
      ranks.push_back(other);
  }
  return ranks;
}

std::shared_ptr<const Failure> ShmControl::announce_in_order(const Call& call,
                                                             const Signature& signature) {
  announces_.store(true, kRelaxed);
  compare_announced();
  for (int peer = 0; peer < size_; ++peer) {
    const auto is_near = [&] {
      return blocks_[peer].compared.load(kAcquire) + kAnnounced >= call.sequence;
    };
    const WaitResult result = wait_for(peer, kPatient, call.deadline, [&] {
      if (is_near()) return true;
      compare_announced();
      return is_near();
    });
    if (result == WaitResult::broken) return failure();
    if (result == WaitResult::timed_out)
      return fail(late(signature, call.sequence,
                       fmt::format("waiting for a rank that is {} calls behind", kAnnounced)));
  }
  write_announced(call, signature);
  own_.doorbell.ring();
  return nullptr;
}

void ShmControl::compare_announced() {
  if (!compare_mutex_.try_lock()) return;  // another thread does
  MutexLock lock(compare_mutex_, std::adopt_lock);
  const std::uint64_t before = own_.compared.load(kRelaxed);
  const auto last = last_equal(before);
  if (!last || *last == before) return;
  own_.compared.store(*last, kRelease);
  own_.doorbell.ring();
}

Control::Agreement ShmControl::poll_enqueued(std::uint64_t sequence) {
  if (own_.compared.load(kAcquire) < sequence) compare_announced();
  if (own_.compared.load(kAcquire) >= sequence) return Agreement::agreed;
  return broken() ? Agreement::failed : Agreement::pending;
}

bool ShmControl::matches(const Call& call, int peer) {
  const CallSlot& mine = slot(rank_, call.sequence);
  const CallSlot& theirs = slot(peer, call.sequence);
  if (theirs.hash != call.signature) {
    fail_with_mismatch(peer, call.sequence, mine.signature, theirs.signature,
                       agreeing_with(rank_, call.sequence), agreeing_with(peer, call.sequence));
    return false;
  }
  if (const auto* op = std::get_if<AllToAllV>(&call.op)) {
    const std::uint64_t sent = counts(peer, call.sequence)[rank_];
    const std::uint64_t expected = op->output_counts[static_cast<std::size_t>(peer)];
    if (sent != expected) {
      fail(counts_mismatch(call.sequence, peer, rank_, expected, sent));
      return false;
    }
  }
  return true;
}

std::shared_ptr<const Failure> ShmControl::agree(const Call& call, Waiting waiting) {
  RanksOfCall ranks(*this, call, waiting == Waiting::sleep ? kPatient : policy_);
  return failure_after(enter_call(ranks, call.sequence, std::holds_alternative<AllToAllV>(call.op)),
                       [&] { return timed_out(call, "waiting for all ranks to enter the call"); });
}

Control::Agreement ShmControl::poll_agreement(const Call& call) {
  if (broken()) return Agreement::failed;
  for (int peer = 0; peer < size_; ++peer) {
    if (slot(peer, call.sequence).sequence.load(kAcquire) != call.sequence)
      return Agreement::pending;
    if (peer != rank_ && !matches(call, peer)) return Agreement::failed;
  }
  return Agreement::agreed;
}

std::shared_ptr<const Failure> ShmControl::fail(Failure failure_value) {
  write_cause(header_, failure_value);
  return failure();
}

Failure ShmControl::late(const Signature& signature, std::uint64_t sequence,
                         std::string_view phase) {
  std::vector<int> missing;
  if (is_point_to_point(signature.kind)) {
    if (signature.root >= 0 && signature.root != rank_) missing.push_back(signature.root);
  } else {
    missing =
        ranks_that([&](int rank) { return blocks_[rank].submitted.load(kRelaxed) < sequence; });
  }
  const auto about = [&](int peer) {
    const bool crossing = signature.kind == OpKind::send && only_sends_to_us(peer);
    return ": " + last_op_of(peer) +
           (crossing ? "; both ranks send first: use isend and irecv, or batch()" : "");
  };
  if (!missing.empty() || is_point_to_point(signature.kind))
    return name_not_running(deadline_passed(signature, sequence, phase, missing, about), members_,
                            missing);
  // All entered. A rank that has not left the call may wait for another one of them.
  missing = ranks_that(
      [&](int rank) { return rank != rank_ && blocks_[rank].finished.load(kRelaxed) < sequence; });
  Failure failure = deadline_passed(signature, sequence, phase, missing, about);
  const int culprit = missing.size() == 1 ? missing.front() : silent_one(missing);
  failure.rank = culprit;
  failure.host = culprit < 0 ? "" : members_[static_cast<std::size_t>(culprit)].host;
  failure.pid = culprit < 0 ? 0 : members_[static_cast<std::size_t>(culprit)].pid;
  return failure;
}

bool ShmControl::only_sends_to_us(int peer) const {
  bool sends = false, receives = false;
  visit_records(blocks_[peer], [&](const Recorded& record) {
    if (record.state != Record::running) return;
    const Signature& signature = record.signature;
    const bool with_us = signature.root == rank_;
    sends = sends || (signature.kind == OpKind::send && with_us);
    receives =
        receives || (signature.kind == OpKind::recv && (with_us || signature.root == kAnySource));
  });
  return sends && !receives;
}

int ShmControl::silent_one(const std::vector<int>& ranks) const noexcept {
  constexpr std::int64_t kSilence = std::chrono::nanoseconds(10 * kMonitorPeriod).count();
  int silent = -1;
  std::int64_t since = steady_ns() - kSilence;
  for (const int rank : ranks) {
    const std::int64_t beat = blocks_[rank].heartbeat_ns.load(kRelaxed);
    if (beat >= since) continue;
    since = beat;
    silent = rank;
  }
  return silent;
}

// Measured from when this rank's monitor ran last: both may have been stopped since.
bool ShmControl::is_silent(int rank) const noexcept {
  const std::int64_t silence = last_tick_ns_ - blocks_[rank].heartbeat_ns.load(kRelaxed);
  return silence > std::chrono::nanoseconds(kSilence).count() && !has_left(rank);
}

std::shared_ptr<const Failure> ShmControl::barrier(Deadline deadline) {
  Ranks ranks(*this, Gate::barriers, policy_, deadline);
  const std::uint64_t round = own_.barriers.load(kRelaxed) + 1;
  int peer = 0;
  const Entry entry = enter_barrier(ranks, round, peer);
  return failure_after(entry, [&] {
    if (entry == Entry::left) return ControlPlane::left(peer, "monitored_barrier");
    // `peer` may arrive right now: too late.
    const auto is_missing = [&](int rank) {
      return rank == peer || blocks_[rank].barriers.load(kAcquire) < round;
    };
    return did_not_reach_barrier(ranks_that(is_missing), round);
  });
}

bool ShmControl::is_gone(RankBlock& block) const noexcept {
  const int result = pthread_mutex_trylock(&block.alive);
  if (result == EBUSY) return false;
  if (result == EOWNERDEAD) pthread_mutex_consistent(&block.alive);
  if (result == 0 || result == EOWNERDEAD) pthread_mutex_unlock(&block.alive);
  return true;
}

void ShmControl::check_peer(int peer) {
  RankBlock& block = blocks_[peer];
  if (block.presence.load(kAcquire) != Presence::joined) return;
  if (block.pid == own_.pid) return;  // a thread of this process
  if (is_gone(block) && block.presence.load(kAcquire) == Presence::joined) {
    fail(failure_about(peer, Code::peer_died,
                       fmt::format("{} died without leaving the group; its last op: {}",
                                   name_of(peer), last_op_of(peer))));
  }
}

// Whether `peer` has not come as far as this op of ours.
bool ShmControl::is_behind(int peer, const Recorded& record) const noexcept {
  if (is_point_to_point(record.signature.kind))
    return peer != rank_ && (peer == record.signature.root ||
                             (record.signature.root == kAnySource && all_others_left()));
  return blocks_[peer].submitted.load(kRelaxed) < record.sequence;
}

// A rank that has left never comes. Its last calls were before that: ask first, then look at them.
bool ShmControl::has_left(int peer) const noexcept {
  return blocks_[peer].presence.load(kAcquire) == Presence::left;
}

bool ShmControl::all_others_left() const noexcept {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && !has_left(peer)) return false;
  return true;
}

void ShmControl::fail_if_it_waits_for_a_rank_that_left(const Recorded& record, std::int64_t now) {
  // A message may still be on its way from a rank that has left.
  if (is_point_to_point(record.signature.kind) && now - record.start_ns <= 1'000'000'000) return;
  for (int peer = 0; peer < size_; ++peer)
    if (has_left(peer) && is_behind(peer, record))
      fail(ControlPlane::left(
          peer, fmt::format("{} #{}", to_string(record.signature.kind), record.sequence)));
}

// A peer that has left will never come, and an op that runs for long is worth a warning with names.
void ShmControl::check_running_ops() {
  if (!is_busy(own_)) return;
  const std::int64_t now = steady_ns();
  std::vector<Recorded> running;
  visit_records(own_, [&](const Recorded& record) {
    if (record.state == Record::running) running.push_back(record);
  });
  for (const Recorded& record : running) fail_if_it_waits_for_a_rank_that_left(record, now);
  warn_of_late_op([this](const Recorded& record) {
    return ranks_that([&](int rank) { return is_behind(rank, record); });
  });
}

void ShmControl::look_for_evidence() {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) check_peer(peer);
}

void ShmControl::tick() {
  last_tick_ns_ = own_.heartbeat_ns.exchange(steady_ns(), kRelaxed);
  watch_library(1);
  if (broken()) return;
  if (announces_.load(kRelaxed)) compare_announced();
  look_for_evidence();
  check_running_ops();
}

std::size_t shared_bytes(int size) noexcept {
  return sizeof(GroupHeader) + static_cast<std::size_t>(size) * sizeof(RankBlock) +
         counts_bytes(size);
}

ShareOptions share_options(const ControlOptions& options, GroupFormation& formation) {
  return {.store = options.store,
          .key = "control",
          .rank = options.rank,
          .size = options.size,
          .token = options.token,
          .deadline = options.deadline,
          .failure = [this_joining = &formation] { return this_joining->failure(); }};
}

void ShmControl::serve_blocks(const ControlOptions& options, GroupFormation& formation) {
  share_memory(share_options(options, formation), mapping_);
}

std::shared_ptr<SharedMapping> shared_blocks(const ControlOptions& options,
                                             GroupFormation& formation) {
  if (options.rank == 0) return memory_for(options, 0, options.size, counts_bytes(options.size));
  auto mapping = share_memory(share_options(options, formation), nullptr);
  if (mapping->size() != shared_bytes(options.size))
    throw_failure({.code = Code::corrupt,
                   .message = fmt::format("rank 0 shares a control plane of {} bytes, this build "
                                          "needs {}: every rank must run the same build",
                                          mapping->size(), shared_bytes(options.size)),
                   .group = options.group});
  return mapping;
}

}  // namespace

std::shared_ptr<ControlPlane> make_shm_control(const ControlOptions& options) {
  return join_by<ShmControl>(
      options,
      [&options](GroupFormation& formation) {
        auto control = std::make_shared<ShmControl>(options, shared_blocks(options, formation));
        watch(control);
        return control;
      },
      [&options](const std::shared_ptr<ShmControl>& control, GroupFormation& formation) {
        control->join(options, formation);
      });
}

}}  // namespace c10d::v0
