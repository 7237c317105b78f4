// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/store_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "src/base/failure_text.h"
#include "src/base/log.h"
#include "src/base/members.h"
#include "src/control/announced_call.h"
#include "src/control/call_rows.h"
#include "src/control/group_formation.h"
#include "src/control/store_keys.h"
#include "src/control/store_silence.h"
#include "src/recorder/flight_recorder.h"
#include "src/sync/process_singleton.h"
#include "src/sync/thread_pool.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr int kTicksPerPoll = 10;                  // of the monitor, between polls of the store
constexpr int kPollsPerHeartbeat = 5;              // between heartbeats: a second
constexpr int kSilentBeats = 8;                    // of a peer, until it counts as dead
constexpr std::chrono::milliseconds kGlance{100};  // of a rank that waits, and looks again

// For the polls of all groups. A store that does not answer holds a thread for each group that uses
// it; beyond so many, groups wait for each other.
class StorePollers : public ThreadPool {
 public:
  StorePollers() : ThreadPool(16, kOnePerGroup) {}

 private:
  static constexpr std::size_t kOnePerGroup = std::size_t{1} << 20;
};

class StoreControl final : public ControlPlane {
 public:
  explicit StoreControl(const ControlOptions& options)
      : ControlPlane(options, memory_for(options, options.rank, 1), options.rank),
        store_(options.store),
        rows_({.store = store_,
               .own = own_,
               .rank = rank_,
               .size = size_,
               .last_equal = [this](std::uint64_t compared) { return last_equal(compared); },
               .look_for_cause = [this] { look_for_cause(); },
               .broken = [this] { return broken(); },
               .fail = [this](const Failure& failure) { fail(failure); }}) {}

  // Returns when all are there.
  void join(const ControlOptions& options, GroupFormation& formation) {
    own_.presence.store(Presence::joined, std::memory_order_release);
    store_->set(beat_key(rank_), "0", patience_until(options.deadline));
    formation.await(keys_of("beat"));
  }

  std::shared_ptr<const Failure> agree(const Call& call, Waiting waiting) override;
  void announce(const Call& call) override;
  Agreement poll_agreement(const Call& call) override;
  std::shared_ptr<const Failure> announce_in_order(const Call& call,
                                                   const Signature& signature) override;
  Agreement poll_enqueued(std::uint64_t sequence) override;
  std::shared_ptr<const Failure> fail(Failure failure) override;
  std::shared_ptr<const Failure> revoke(Failure failure) override;
  std::shared_ptr<const Failure> barrier(Deadline deadline) override;
  void leave() noexcept override;
  std::vector<int> ranks_that_left() override { return ranks_that_left(kStorePatience); }
  bool has_left(int peer) const noexcept override {
    return left_peers_[static_cast<std::size_t>(peer)].load(std::memory_order_relaxed);
  }
  void tick() override;
  void end_polls() noexcept override;
  void look_for_evidence() override;

 private:
  void poll() noexcept;
  Failure late(const Signature& signature, std::uint64_t sequence, std::string_view phase) override;
  void look_for_cause(Duration patience = kStorePatience);
  void look_for_dead();
  // A key of this rank that nobody reads any more: a call does not wait for that.
  void delete_later(std::string key);
  void delete_keys() noexcept;
  void write_rows(Duration patience) noexcept;
  void keep_for_later(const Failure& failure);
  void tell(Duration patience = kStorePatience);  // what was kept
  // Of every rank, under its number.
  std::vector<std::string> keys_of(std::string_view what) const {
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank) all.push_back(fmt::format("{}/{}", what, rank));
    return all;
  }
  std::vector<std::string> keys(std::uint64_t sequence) const {
    return keys_of(fmt::format("call/{}", sequence));
  }
  static std::string beat_key(int rank) { return fmt::format("beat/{}", rank); }
  class Keys;
  class KeysOfCall;
  class KeysOfBarrier;
  template <class AnyKeys>
  std::shared_ptr<const Failure> enter(AnyKeys keys);
  std::shared_ptr<const Failure> give_up(const Keys& keys, Failure failure);
  const AnnouncedSlot& announced(int rank, std::uint64_t sequence) const noexcept override {
    return rows_.slot(rank, sequence);
  }
  void visit_calls(int rank, const std::function<void(const Recorded&)>& visit) override {
    rank == rank_ ? visit_records(own_, visit) : rows_.visit_messages(rank, visit);
  }
  void want_calls(int rank) noexcept override { rows_.want_messages(rank); }
  void beat();
  // All have one: it was there before anybody came out of the constructor.
  std::vector<std::string> beats(Duration patience = kStorePatience) {
    return store_->multi_get(keys_of("beat"), patience);
  }
  std::vector<int> ranks_that_left(Duration patience);
  void look_for_beats();
  void look_for_left_peers(const std::vector<std::string>& values);
  void look_for_left_in_rows();
  std::vector<int> behind(const Signature& signature, std::uint64_t sequence);
  // Breaks the group when a rank that left has not written its key before.
  void look_for_left(const std::vector<std::string>& by_rank, std::string_view where);
  // Breaks the group unless every rank announced the same.
  Seen compare(const Call& call, const std::vector<std::string>& values);

  const std::shared_ptr<Store> store_;
  std::array<std::uint64_t, 2> agreed_{};  // the last two calls: by the one thread that agrees
  CallRows rows_;
  Mutex mutex_;
  std::optional<std::string> untold_ C10D_GUARDED_BY(mutex_);  // a failure as text
  std::vector<std::string> old_keys_ C10D_GUARDED_BY(mutex_);  // to be deleted
  // One poll at a time:
  Mutex poll_mutex_;
  CondVar polled_;
  bool polling_ C10D_GUARDED_BY(poll_mutex_) = false;
  // For the thread that polls: these three.
  int polls_ = 0;
  StoreSilence silence_;
  struct Beat {
    std::string value;
    int silent = 0;  // how many polls found the same
  };
  std::vector<Beat> beats_{static_cast<std::size_t>(size_)};  // by rank
  std::vector<std::atomic<bool>> left_peers_ =
      std::vector<std::atomic<bool>>(static_cast<std::size_t>(size_));  // as of the last poll
  std::atomic<bool> store_answers_ = true;                              // when it was polled last
  std::atomic<bool> leaving_ = false;
  // Since the last poll. A thread that has a failure to report sets it.
  std::atomic<int> ticks_ = 0;
  Mutex beat_mutex_;
  std::uint64_t own_beats_ C10D_GUARDED_BY(beat_mutex_) = 0;
  bool left_ C10D_GUARDED_BY(beat_mutex_) = false;
};

// A store that does not answer now takes the request when it runs again. A rank that leaves because
// a rank of its host died reports that first, or the others would name the rank that left.
void StoreControl::leave() noexcept try {
  leaving_ = true;
  if (store_answers_) look_for_dead();
  const Duration patience = store_answers_ ? Duration(kStorePatience) : Duration::zero();
  tell(patience);
  write_rows(patience);
  {
    MutexLock lock(beat_mutex_);
    if (std::exchange(left_, true)) return;
    own_.presence.store(Presence::left, std::memory_order_release);
    store_->set(beat_key(rank_), kLastBeat, patience);
  }
  if (store_answers_) delete_keys();
  if (broken() && store_answers_) wait_for_others_to_poll([this] { return beats(); });
} catch (const std::exception&) {  // the store is gone: no rank can be notified
}

// A rank that leaves says so even if the others do not see its last calls.
void StoreControl::write_rows(Duration patience) noexcept try {
  rows_.write_row(patience);
  rows_.write_messages(patience);
} catch (const std::exception& error) {
  log(LogLevel::info, "group \"{}\", rank {}: its last calls were not told: {}", group_, rank_,
      error.what());
}

void StoreControl::beat() {
  MutexLock lock(beat_mutex_);
  if (!left_) store_->set(beat_key(rank_), std::to_string(++own_beats_), kStorePatience);
}

// A message may still be on its way from a rank that has left.
void StoreControl::look_for_left_peers(const std::vector<std::string>& values) {
  const std::int64_t a_second_ago = steady_ns() - 1'000'000'000;
  const bool all_left = std::count(values.begin(), values.end(), kLastBeat) == size_ - 1;
  for (std::size_t peer = 0; peer < values.size(); ++peer)
    if (values[peer] == kLastBeat) left_peers_[peer].store(true, std::memory_order_relaxed);
  visit_records(own_, [&](const Recorded& record) {
    if (record.state != Record::running || !is_point_to_point(record.signature.kind) ||
        record.start_ns >= a_second_ago)
      return;
    int peer = record.signature.root;
    if (peer == kAnySource && all_left) peer = rank_ == 0 ? 1 : 0;
    if (peer >= 0 && peer < size_ && values[static_cast<std::size_t>(peer)] == kLastBeat)
      fail(ControlPlane::left(
          peer, fmt::format("{} #{}", to_string(record.signature.kind), record.sequence)));
  });
}

// A rank writes its row before it leaves.
void StoreControl::look_for_left_in_rows() {
  std::optional<Recorded> last;  // collective on a GPU that is not compared
  visit_records(own_, [&](const Recorded& record) {
    if (record.state == Record::running && !is_point_to_point(record.signature.kind) &&
        record.signature.device == DeviceType::cuda &&
        own_.compared.load(std::memory_order_acquire) < record.sequence)
      last = record;
  });
  if (!last || broken()) return;
  for (int peer = 0; peer < size_; ++peer) {
    if (!has_left(peer) || !rows_.is_behind(peer, last->sequence)) continue;
    fail(ControlPlane::left(
        peer, fmt::format("{} #{}", to_string(last->signature.kind), last->sequence)));
    return;
  }
}

// Polls are counted, not seconds: a rank that slept itself does not take the others for dead.
void StoreControl::look_for_beats() {
  std::vector<std::string> values = beats();
  look_for_left_peers(values);
  if (std::find(values.begin(), values.end(), kLastBeat) != values.end()) look_for_left_in_rows();
  for (int peer = 0; peer < size_; ++peer) {
    Beat& last = beats_[static_cast<std::size_t>(peer)];
    std::string& value = values[static_cast<std::size_t>(peer)];
    last.silent = value == last.value ? last.silent + 1 : 0;
    last.value = std::move(value);
    if (peer == rank_ || last.value == kLastBeat || last.silent < kSilentBeats) continue;
    fail(failure_about(peer, Code::peer_died,
                       fmt::format("{} sent no heartbeat for {} s: it died or hangs, or its "
                                   "host is cut off",
                                   name_of(peer), kSilentBeats)));
    return;
  }
}

std::vector<int> StoreControl::ranks_that_left(Duration patience) {
  const std::vector<std::string> values = beats(patience);
  std::vector<int> ranks;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && values[static_cast<std::size_t>(peer)] == kLastBeat) ranks.push_back(peer);
  return ranks;
}

void StoreControl::look_for_left(const std::vector<std::string>& by_rank,
                                 std::string_view where) try {
  for (const int peer : ranks_that_left(kGlance)) {
    // It wrote this before it left, or never.
    if (store_->try_get(by_rank[static_cast<std::size_t>(peer)], kGlance)) continue;
    fail(ControlPlane::left(peer, where));
    return;
  }
} catch (const DistTimeoutError&) {  // as in Keys::look_for_cause()
}

// Of agreement.h. A store that does not answer for a while is no reason to give up, as the others
// may be in the call by what it said before: a look at it then finds nothing new.
class StoreControl::Keys : public StoreKeys {
 public:
  Keys(StoreControl& control, std::vector<std::string> keys, Deadline deadline)
      : StoreKeys(control.store_, std::move(keys), control.rank_, deadline), control_(control) {}

  int size() const noexcept { return control_.size_; }
  bool broken() const noexcept { return control_.broken(); }
  void look_for_cause() const try {
    control_.look_for_cause(kGlance);
  } catch (const DistTimeoutError&) {  // the monitor counts how long
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank)
      if (!has_come(rank)) ranks.push_back(rank);
    return ranks;
  }

  // Named before give_up() bars a missing rank, which then looks as if it had arrived.
  std::optional<Failure> late;

 protected:
  StoreControl& control_;
};

class StoreControl::KeysOfCall : public Keys {
 public:
  KeysOfCall(StoreControl& control, const Call& call)
      : Keys(control, control.keys(call.sequence), call.deadline), call_(call) {}

  bool arrive() const { return Keys::arrive(to_bytes(call_, signature_of(call_.op, size()))); }
  void forget() const {
    auto& last = control_.agreed_;
    if (last[0] != 0) control_.delete_later(fmt::format("call/{}/{}", last[0], control_.rank_));
    last = {last[1], call_.sequence};
  }
  bool is_late() {
    if (!deadline_passed()) return false;
    late = control_.timed_out(call_, "waiting for all ranks to enter the call");
    return true;
  }
  Seen read() const {
    const std::vector<std::string> seen = values();
    if (!seen.empty()) return control_.compare(call_, seen);
    control_.look_for_left(keys(),
                           fmt::format("{} #{}", to_string(kind_of(call_.op)), call_.sequence));
    return Seen::not_all;
  }

 private:
  const Call& call_;
};

class StoreControl::KeysOfBarrier : public Keys {
 public:
  KeysOfBarrier(StoreControl& control, std::uint64_t round, Deadline deadline)
      : Keys(control, control.keys_of(fmt::format("barrier/{}", round)), deadline), round_(round) {}

  bool arrive() const { return Keys::arrive("came"); }
  void forget() const {
    if (round_ > 2) control_.delete_later(fmt::format("barrier/{}/{}", round_ - 2, control_.rank_));
  }
  bool is_late() {
    if (!deadline_passed()) return false;
    late = control_.did_not_reach_barrier(missing(), round_);
    return true;
  }
  Seen read() const {
    const std::vector<std::string> seen = values();
    if (seen.empty()) control_.look_for_left(keys(), "monitored_barrier");
    if (seen.empty()) return Seen::not_all;
    return std::count(seen.begin(), seen.end(), kBarred) == 0 ? Seen::same : Seen::barred;
  }

 private:
  const std::uint64_t round_;
};

// After an error of the store: a rank that passes may wait for this one in a wrapped library. This
// rank does not wait again for a store that did not answer: the store takes the request when it
// runs again.
std::shared_ptr<const Failure> StoreControl::give_up(const Keys& keys, Failure failure) {
  constexpr std::chrono::milliseconds kShortest{1};
  const bool answers = failure.code != Code::timed_out;
  try {
    for (int rank = 0; rank < size_; ++rank)
      if (keys.bar(rank, answers ? Duration(kStorePatience) : kShortest)) break;
  } catch (const DistError&) {  // the store is gone: no rank passes
  }
  return answers ? fail(std::move(failure)) : revoke(std::move(failure));
}

void StoreControl::announce(const Call& call) {
  const KeysOfCall keys(*this, call);
  if (broken() || !keys.arrive()) return;
  keys.forget();
}

Seen StoreControl::compare(const Call& call, const std::vector<std::string>& values) {
  std::vector<AnnouncedCall> calls;
  for (int peer = 0; peer < size_; ++peer) {
    const std::string& bytes = values[static_cast<std::size_t>(peer)];
    if (bytes == StoreKeys::kBarred) return Seen::barred;
    auto theirs = read_announced(bytes, size_);
    if (!theirs) {
      fail(failure_about(peer, Code::corrupt, name_of(peer) + " announced a short call"));
      return Seen::differs;
    }
    if (theirs->hash != call.signature) {
      fail(
          mismatch(signature_of(call.op, size_), peer, theirs->signature, peer, {}, call.sequence));
      return Seen::differs;
    }
    calls.push_back(*std::move(theirs));
  }
  if (!std::holds_alternative<AllToAllV>(call.op)) return Seen::same;
  const auto it = first_misfit(calls);
  if (!it) return Seen::same;
  fail(counts_mismatch(call.sequence, it->sender, it->receiver, it->expected, it->sent));
  return Seen::differs;
}

template <class AnyKeys>
std::shared_ptr<const Failure> StoreControl::enter(AnyKeys keys) try {
  switch (enter_over_store(keys)) {
    case Entry::goes:
      return nullptr;
    case Entry::given_up:
      return failure_of_another();
    case Entry::late:
      return fail(*std::move(keys.late));
    default:
      return failure();
  }
} catch (const DistError& error) {
  return give_up(keys, error.failure());
}

std::shared_ptr<const Failure> StoreControl::agree(const Call& call, Waiting) {
  return enter(KeysOfCall(*this, call));
}

Control::Agreement StoreControl::poll_agreement(const Call& call) try {
  if (broken()) return Agreement::failed;
  const std::vector<std::string> all = keys(call.sequence);
  const Duration left = std::max<Duration>(call.deadline - std::chrono::steady_clock::now(), {});
  if (!store_->check(all, left)) return Agreement::pending;
  const Seen seen = compare(call, store_->multi_get(all, left));
  if (seen == Seen::barred) failure_of_another();
  return seen == Seen::same ? Agreement::agreed : Agreement::failed;
} catch (const DistError& error) {
  fail(error.failure());
  return Agreement::failed;
}

// A slot of this rank is free once its call is compared: the row has it until then.
std::shared_ptr<const Failure> StoreControl::announce_in_order(const Call& call,
                                                               const Signature& signature) {
  constexpr std::chrono::microseconds kLook{200};
  rows_.start();
  while (own_.compared.load(std::memory_order_acquire) + kAnnounced < call.sequence) {
    if (broken()) return failure();
    if (std::chrono::steady_clock::now() >= call.deadline) {
      const std::vector<int> missing = rows_.behind(call.sequence - kAnnounced);
      const std::string phase =
          fmt::format("waiting for a rank that is {} calls behind", kAnnounced);
      return fail(name_not_running(deadline_passed(signature, call.sequence, phase, missing),
                                   members_, missing));
    }
    rows_.want();
    std::this_thread::sleep_for(kLook);
  }
  write_announced(call, signature);
  rows_.announced(call.sequence);
  return nullptr;
}

Control::Agreement StoreControl::poll_enqueued(std::uint64_t sequence) {
  if (own_.compared.load(std::memory_order_acquire) >= sequence) return Agreement::agreed;
  if (broken()) return Agreement::failed;
  rows_.want();
  return Agreement::pending;
}

// The store decides which failure was first, so that all ranks have one cause.
std::shared_ptr<const Failure> StoreControl::fail(Failure failure_value) {
  if (broken()) return failure();
  try {
    const std::string mine = to_text(failure_value);
    const auto first = store_->compare_set("cause", std::nullopt, mine, kStorePatience);
    write_cause(header_, from_text(first.value_or(mine)));
  } catch (const std::exception& error) {
    log(LogLevel::warn, "group \"{}\": peers could not be notified of a failure yet: {}", group_,
        error.what());
    keep_for_later(failure_value);
    write_cause(header_, failure_value);
  }
  return failure();
}

// The store may take long to answer: the monitor tells it.
std::shared_ptr<const Failure> StoreControl::revoke(Failure failure_value) {
  if (broken()) return failure();
  keep_for_later(failure_value);
  write_cause(header_, failure_value);
  return failure();
}

void StoreControl::keep_for_later(const Failure& failure) {
  MutexLock lock(mutex_);
  if (!untold_) untold_ = to_text(failure);
  ticks_ = kTicksPerPoll;
}

void StoreControl::delete_later(std::string key) {
  constexpr std::size_t kMost = 4096;
  bool full = false;
  {
    MutexLock lock(mutex_);
    old_keys_.push_back(std::move(key));
    full = old_keys_.size() >= kMost;
  }
  if (full) delete_keys();
}

void StoreControl::delete_keys() noexcept {
  std::vector<std::string> keys;
  {
    MutexLock lock(mutex_);
    keys.swap(old_keys_);
  }
  try {
    for (; !keys.empty(); keys.pop_back()) store_->delete_key(keys.back(), kStorePatience);
  } catch (const std::exception&) {  // the monitor counts how long the store is silent
    MutexLock lock(mutex_);
    keys.swap(old_keys_);  // what came meanwhile, the less, stays in the store
  }
}

void StoreControl::tell(Duration patience) {
  std::optional<std::string> text;
  {
    MutexLock lock(mutex_);
    text = untold_;
  }
  if (!text) return;
  store_->compare_set("cause", std::nullopt, *text, patience);
  MutexLock lock(mutex_);
  untold_.reset();
}

// Takes over the failure that another rank published.
void StoreControl::look_for_cause(Duration patience) {
  if (broken()) return;
  if (const std::optional<std::string> text = store_->try_get("cause", patience))
    write_cause(header_, from_text(*text));
}

Failure StoreControl::late(const Signature& signature, std::uint64_t sequence,
                           std::string_view phase) {
  std::vector<int> missing;
  try {
    missing = behind(signature, sequence);
  } catch (const DistError&) {  // the store is gone: the ranks stay unnamed
  }
  return name_not_running(deadline_passed(signature, sequence, phase, missing), members_, missing);
}

std::shared_ptr<const Failure> StoreControl::barrier(Deadline deadline) {
  const std::uint64_t round = own_.barriers.load() + 1;
  own_.barriers.store(round);
  return enter(KeysOfBarrier(*this, round, deadline));
}

// The ranks that have not announced this call.
std::vector<int> StoreControl::behind(const Signature& signature, std::uint64_t sequence) {
  std::vector<int> ranks{signature.root};
  if (!is_point_to_point(signature.kind))
    ranks = signature.device == DeviceType::cuda ? rows_.behind(sequence)
                                                 : Keys(*this, keys(sequence), {}).missing();
  std::erase_if(ranks, [this](int rank) { return rank < 0 || rank == rank_; });
  return ranks;
}

void StoreControl::look_for_evidence() try {
  look_for_cause();
  look_for_dead();
} catch (const DistError&) {  // the store is gone: no rank can be notified
}

// Of ranks on this host: a rank that ends has written before that it left, or never does.
void StoreControl::look_for_dead() {
  if (broken()) return;
  for (const Member& member : members_) {
    if (!has_ended(member)) continue;
    if (store_->try_get(beat_key(member.rank), kStorePatience) == kLastBeat) continue;
    fail(failure_about(member.rank, Code::peer_died,
                       name_of(member.rank) + " ended without leaving the group"));
    return;
  }
}

void StoreControl::tick() {
  own_.heartbeat_ns.store(steady_ns(), std::memory_order_relaxed);
  rows_.want();
  // A rank may wait inside NCCL for the other end, which learns of it by this.
  if (ops_on_gpu() > 0) rows_.want_messages(rank_);
  MutexLock lock(poll_mutex_);
  if (polling_ || (leaving_ && !store_answers_) || ++ticks_ < kTicksPerPoll) return;
  ticks_ = 0;
  polling_ = of_this_process<StorePollers>().add([this] { poll(); });
  if (!polling_ && store_answers_.exchange(false))
    log(LogLevel::warn,
        "group \"{}\", rank {}: failures of other ranks cannot be noticed: no "
        "thread could be started to look; raise ulimit -u",
        group_, rank_);
}

void StoreControl::end_polls() noexcept {
  rows_.stop();
  MutexLock lock(poll_mutex_);
  while (polling_) polled_.wait(poll_mutex_);
}

void StoreControl::poll() noexcept {
  try {
    watch_library(kTicksPerPoll);
    tell();
    delete_keys();
    if (!broken()) {
      look_for_cause();
      look_for_dead();
      if (++polls_ % kPollsPerHeartbeat == 0) {
        beat();
        look_for_beats();
        warn_of_late_op(
            [this](const Recorded& record) { return behind(record.signature, record.sequence); });
      }
      store_answers_ = true;
    }
    silence_.end(std::chrono::steady_clock::now());
  } catch (const std::exception& error) {
    if (store_answers_.exchange(false))
      log(LogLevel::warn, "group \"{}\", rank {}: failures of other ranks cannot be noticed: {}",
          group_, rank_, error.what());
    if (silence_.is_long(std::chrono::steady_clock::now()) && has_running_op(own_))
      revoke(store_is_silent(group_, members_, error.what()));
  }
  MutexLock lock(poll_mutex_);
  polling_ = false;
  polled_.notify_all();
}

}  // namespace

std::shared_ptr<ControlPlane> make_store_control(const ControlOptions& options) {
  return join_by<StoreControl>(
      options, [&options](GroupFormation&) { return std::make_shared<StoreControl>(options); },
      [&options](const std::shared_ptr<StoreControl>& control, GroupFormation& formation) {
        control->join(options, formation);
        watch(control);
      });
}

}}  // namespace c10d::v0
