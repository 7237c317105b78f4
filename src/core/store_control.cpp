// SPDX-License-Identifier: BSD-3-Clause
#include "src/core/store_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "src/core/failure_text.h"
#include "src/core/joining.h"
#include "src/core/log.h"
#include "src/core/members.h"
#include "src/core/per_process.h"
#include "src/core/recorder.h"
#include "src/core/store_patience.h"
#include "src/core/tasks.h"

namespace c10d::inline v0 {
namespace {

constexpr std::chrono::milliseconds kSlice{100};   // how often a wait looks for a broken group
constexpr std::chrono::milliseconds kShortest{1};  // time for a request that needs no wait
constexpr int kTicksPerLook = 10;                  // of the monitor, between looks at the store
constexpr int kLooksPerBeat = 5;                   // between signs of life: a second
constexpr int kSilentBeats = 10;                   // of a peer, until it is taken for dead
constexpr std::string_view kLeft = "left";         // the last sign of life
constexpr std::string_view kBarred = "barred";     // written for a rank that is not waited for

// For the looks of all groups at their stores. A store that does not answer holds a thread for each
// group that uses it; beyond so many, groups wait for each other.
class Lookers : public Tasks {
 public:
  Lookers() : Tasks(16, kOnePerGroup) {}

 private:
  static constexpr std::size_t kOnePerGroup = std::size_t{1} << 20;
};

// An announcement as bytes. Both sides are of one version and byte order: the bootstrap has
// checked.
struct Announcement {
  std::uint64_t sequence;
  std::uint64_t hash;
  Signature signature;
};

std::string to_bytes(const Announcement& announcement, std::span<const std::size_t> counts) {
  std::string bytes(sizeof announcement + counts.size_bytes(), '\0');
  std::memcpy(bytes.data(), &announcement, sizeof announcement);
  if (!counts.empty())
    std::memcpy(bytes.data() + sizeof announcement, counts.data(), counts.size_bytes());
  return bytes;
}

class StoreControl final : public ControlPlane {
 public:
  explicit StoreControl(const ControlOptions& options)
      : ControlPlane(options, memory_for(options, options.rank, 1), options.rank),
        store_(options.store) {}

  // Returns when all are there.
  void join(const ControlOptions& options, Joining& joining) {
    own_.presence.store(Presence::joined, std::memory_order_release);
    store_->set(beat_key(rank_), "0", patience_until(options.deadline));
    joining.await(beat_keys());
  }

  std::shared_ptr<const Failure> agree(const Call& call, Waiting waiting) override;
  void announce(const Call& call) override { show(call); }
  Agreement poll_agreement(const Call& call) override;
  std::shared_ptr<const Failure> fail(Failure failure) override;
  std::shared_ptr<const Failure> revoke(Failure failure) override;
  std::shared_ptr<const Failure> barrier(Deadline deadline) override;
  void leave() noexcept override;
  std::vector<int> ranks_that_left() override;
  void tick() override;
  void end_looks() noexcept override;
  void look_for_evidence() override;

 private:
  void look() noexcept;
  Failure late(const Signature& signature, std::uint64_t sequence, std::string_view phase) override;
  void look_for_cause();
  void look_for_dead();
  void keep_for_later(const Failure& failure);
  void tell(Duration patience = kStorePatience);  // what was kept
  std::string key(int rank, std::uint64_t sequence) const {
    return fmt::format("call/{}/{}", sequence, rank);
  }
  std::vector<std::string> keys(std::uint64_t sequence) const {
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank) all.push_back(key(rank, sequence));
    return all;
  }
  static std::string beat_key(int rank) { return fmt::format("beat/{}", rank); }
  std::vector<std::string> beat_keys() const {
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank) all.push_back(beat_key(rank));
    return all;
  }
  // The keys of all ranks at a barrier.
  std::vector<std::string> barrier_keys(std::uint64_t round) const {
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank)
      all.push_back(fmt::format("barrier/{}/{}", round, rank));
    return all;
  }
  bool has_come(const std::string& key);
  bool arrive(const std::string& own, const std::string& value, Deadline deadline);
  bool bars_one(const std::vector<std::string>& keys, Duration patience = kStorePatience);
  bool show(const Call& call);
  std::shared_ptr<const Failure> give_up(const std::vector<std::string>& keys, Failure failure);
  void beat();
  // All have one: it was there before anybody came out of the constructor.
  std::vector<std::string> beats() { return store_->multi_get(beat_keys(), kStorePatience); }
  void look_for_beats();
  void look_for_left_peers(const std::vector<std::string>& values);
  std::vector<int> behind(const Signature& signature, std::uint64_t sequence);
  // Breaks the group when a rank that left has not written its key before.
  void look_for_left(const std::vector<std::string>& by_rank, std::string_view where);
  // Null when every rank's announcement matches.
  std::shared_ptr<const Failure> compare(const Call& call, const std::vector<std::string>& values);

  const std::shared_ptr<Store> store_;
  Mutex mutex_;
  std::optional<std::string> untold_ C10D_GUARDED_BY(mutex_);  // a failure as text
  // One look at a time:
  Mutex look_mutex_;
  CondVar looked_;
  bool looking_ C10D_GUARDED_BY(look_mutex_) = false;
  // Who looks:
  int looks_ = 0;
  struct Beat {
    std::string value;
    int silent = 0;  // how many looks found the same
  };
  std::vector<Beat> beats_{static_cast<std::size_t>(size_)};  // by rank
  // Until here.
  std::atomic<bool> store_answers_ = true;  // when it was looked at last
  std::atomic<bool> leaving_ = false;
  // Since the last look. Whoever has something to tell sets it.
  std::atomic<int> ticks_ = 0;
  Mutex beat_mutex_;
  std::uint64_t own_beats_ C10D_GUARDED_BY(beat_mutex_) = 0;
  bool left_ C10D_GUARDED_BY(beat_mutex_) = false;
};

Duration left_until(Deadline deadline) {
  return std::max<Duration>(deadline - std::chrono::steady_clock::now(), Duration::zero());
}

// A store that does not answer takes what it was sent once it goes on.
void StoreControl::leave() noexcept try {
  leaving_ = true;
  const Duration patience = store_answers_ ? Duration(kStorePatience) : Duration::zero();
  tell(patience);
  MutexLock lock(beat_mutex_);
  if (std::exchange(left_, true)) return;
  own_.presence.store(Presence::left, std::memory_order_release);
  store_->set(beat_key(rank_), kLeft, patience);
} catch (const std::exception&) {  // the store is gone, and nobody can be told
}

void StoreControl::beat() {
  MutexLock lock(beat_mutex_);
  if (!left_) store_->set(beat_key(rank_), std::to_string(++own_beats_), kStorePatience);
}

// A message may still be on its way from a rank that has left.
void StoreControl::look_for_left_peers(const std::vector<std::string>& values) {
  constexpr std::int64_t kOnItsWay = 1'000'000'000;
  const std::int64_t now = steady_ns();
  visit_records(own_, [&](const Recorded& record) {
    if (record.state != Record::running || !is_point_to_point(record.signature.kind) ||
        now - record.start_ns <= kOnItsWay || record.signature.root < 0 ||
        record.signature.root >= size_)
      return;
    if (values[static_cast<std::size_t>(record.signature.root)] == kLeft)
      fail(ControlPlane::left(
          record.signature.root,
          fmt::format("{} #{}", to_string(record.signature.kind), record.sequence)));
  });
}

// Looks are counted, not seconds: who slept itself does not take the others for dead.
void StoreControl::look_for_beats() {
  std::vector<std::string> values = beats();
  look_for_left_peers(values);
  for (int peer = 0; peer < size_; ++peer) {
    Beat& last = beats_[static_cast<std::size_t>(peer)];
    std::string& value = values[static_cast<std::size_t>(peer)];
    last.silent = value == last.value ? last.silent + 1 : 0;
    last.value = std::move(value);
    if (peer == rank_ || last.value == kLeft || last.silent < kSilentBeats) continue;
    fail(failure_about(peer, Code::peer_died,
                       fmt::format("{} gave no sign of life for {} s: it died or hangs, or its "
                                   "host is cut off",
                                   name_of(peer), kSilentBeats)));
    return;
  }
}

std::vector<int> StoreControl::ranks_that_left() {
  const std::vector<std::string> values = beats();
  std::vector<int> ranks;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && values[static_cast<std::size_t>(peer)] == kLeft) ranks.push_back(peer);
  return ranks;
}

void StoreControl::look_for_left(const std::vector<std::string>& by_rank, std::string_view where) {
  for (const int peer : ranks_that_left()) {
    // It wrote this before it left, or never.
    if (store_->try_get(by_rank[static_cast<std::size_t>(peer)], kStorePatience)) continue;
    fail(ControlPlane::left(peer, where));
    return;
  }
}

// All ranks pass a point or none does, as in ShmControl: who gives up writes the key of a rank that
// has not come, which then cannot. When all have come, some may have passed, and so must it.
bool StoreControl::arrive(const std::string& own, const std::string& value, Deadline deadline) {
  return store_->compare_set(own, std::nullopt, value, patience_until(deadline)) == value;
}

bool StoreControl::has_come(const std::string& key) {
  const std::optional<std::string> value = store_->try_get(key, kStorePatience);
  return value && *value != kBarred;
}

bool StoreControl::bars_one(const std::vector<std::string>& keys, Duration patience) {
  for (const std::string& key : keys)
    if (store_->compare_set(key, std::nullopt, kBarred, patience) == kBarred) return true;
  return false;
}

// After an error of the store: who passes may wait for this rank in a library. A store that did not
// answer is not waited for again: it takes the request once it goes on.
std::shared_ptr<const Failure> StoreControl::give_up(const std::vector<std::string>& keys,
                                                     Failure failure) {
  const bool answers = failure.code != Code::timed_out;
  try {
    bars_one(keys, answers ? Duration(kStorePatience) : kShortest);
  } catch (const DistError&) {  // the store is gone: nobody passes
  }
  return answers ? fail(std::move(failure)) : revoke(std::move(failure));
}

bool StoreControl::show(const Call& call) {
  std::span<const std::size_t> counts;
  if (const auto* op = std::get_if<AllToAllV>(&call.op)) counts = op->input_counts;
  const bool came =
      arrive(key(rank_, call.sequence),
             to_bytes({call.sequence, call.signature, signature_of(call.op, size_)}, counts),
             call.deadline);
  // Everybody has read what came two calls ago: a rank leads by at most one call.
  if (call.sequence > 2)
    store_->delete_key(key(rank_, call.sequence - 2), patience_until(call.deadline));
  return came;
}

std::shared_ptr<const Failure> StoreControl::compare(const Call& call,
                                                     const std::vector<std::string>& values) {
  const Signature mine = signature_of(call.op, size_);
  for (int peer = 0; peer < size_; ++peer) {
    const std::string& bytes = values[static_cast<std::size_t>(peer)];
    if (bytes == kBarred) return failure_of_another();
    Announcement theirs;
    if (bytes.size() < sizeof theirs)
      return fail(failure_about(peer, Code::corrupt, name_of(peer) + " announced a short call"));
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    if (theirs.hash != call.signature)
      return fail(mismatch(mine, peer, theirs.signature, false, call.sequence));
    const auto* op = std::get_if<AllToAllV>(&call.op);
    if (op == nullptr) continue;
    std::uint64_t sent = 0;
    const std::size_t offset = sizeof theirs + static_cast<std::size_t>(rank_) * sizeof sent;
    if (bytes.size() < offset + sizeof sent)
      return fail(failure_about(peer, Code::corrupt, name_of(peer) + " announced a short call"));
    std::memcpy(&sent, bytes.data() + offset, sizeof sent);
    const std::uint64_t expected = op->output_counts[static_cast<std::size_t>(peer)];
    if (sent != expected) return fail(counts_mismatch(call.sequence, peer, expected, sent));
  }
  return nullptr;
}

std::shared_ptr<const Failure> StoreControl::agree(const Call& call, Waiting) try {
  const std::vector<std::string> all = keys(call.sequence);
  if (!show(call)) return failure_of_another();
  while (true) {
    look_for_cause();
    const Duration left = call.deadline - std::chrono::steady_clock::now();
    if (broken() && bars_one(all)) return failure();
    if (left <= Duration::zero()) {
      Failure late = timed_out(call, "waiting for all ranks to enter the call");
      if (bars_one(all)) return fail(std::move(late));  // who is missing is known no more
    }
    try {
      return compare(call, store_->multi_get(all, std::clamp<Duration>(left, kShortest, kSlice)));
    } catch (const DistTimeoutError&) {  // not all there: look again
    }
    look_for_left(all, fmt::format("{} #{}", to_string(kind_of(call.op)), call.sequence));
  }
} catch (const DistError& error) {
  return give_up(keys(call.sequence), error.failure());
}

Control::Agreement StoreControl::poll_agreement(const Call& call) try {
  if (broken()) return Agreement::failed;
  const std::vector<std::string> all = keys(call.sequence);
  const Duration left = left_until(call.deadline);
  if (!store_->check(all, left)) return Agreement::pending;
  return compare(call, store_->multi_get(all, left)) ? Agreement::failed : Agreement::agreed;
} catch (const DistError& error) {
  fail(error.failure());
  return Agreement::failed;
}

// The store decides who was first, so that all ranks have one cause.
std::shared_ptr<const Failure> StoreControl::fail(Failure failure_value) {
  if (broken()) return failure();
  try {
    const std::string mine = to_text(failure_value);
    const auto first = store_->compare_set("cause", std::nullopt, mine, kStorePatience);
    write_cause(header_, from_text(first.value_or(mine)));
  } catch (const std::exception& error) {
    log(LogLevel::warn, "group \"{}\": peers could not be told of a failure yet: {}", group_,
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
  ticks_ = kTicksPerLook;
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
void StoreControl::look_for_cause() {
  if (broken()) return;
  if (const std::optional<std::string> text = store_->try_get("cause", kStorePatience))
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

std::shared_ptr<const Failure> StoreControl::barrier(Deadline deadline) try {
  const std::uint64_t round = own_.barriers.load() + 1;
  own_.barriers.store(round);
  const std::vector<std::string> all = barrier_keys(round);
  if (!arrive(all[static_cast<std::size_t>(rank_)], "came", deadline)) return failure_of_another();
  while (true) {
    look_for_cause();
    const Duration left = deadline - std::chrono::steady_clock::now();
    if (broken() && bars_one(all)) return failure();
    if (left <= Duration::zero()) {
      std::vector<int> missing;
      for (int peer = 0; peer < size_; ++peer)
        if (!has_come(all[static_cast<std::size_t>(peer)])) missing.push_back(peer);
      if (bars_one(all)) return fail(did_not_reach_barrier(missing, round));
    }
    try {
      for (const std::string& came :
           store_->multi_get(all, std::clamp<Duration>(left, kShortest, kSlice)))
        if (came == kBarred) return failure_of_another();
      if (round > 1)
        store_->delete_key(fmt::format("barrier/{}/{}", round - 1, rank_), kStorePatience);
      return nullptr;
    } catch (const DistTimeoutError&) {
      look_for_left(all, "monitored_barrier");
    }
  }
} catch (const DistError& error) {
  return give_up(barrier_keys(own_.barriers.load()), error.failure());
}

// The ranks that have not announced this call.
std::vector<int> StoreControl::behind(const Signature& signature, std::uint64_t sequence) {
  std::vector<int> ranks;
  if (is_point_to_point(signature.kind)) {
    if (signature.root >= 0 && signature.root != rank_) ranks.push_back(signature.root);
    return ranks;
  }
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && !has_come(key(peer, sequence))) ranks.push_back(peer);
  return ranks;
}

void StoreControl::look_for_evidence() try {
  look_for_cause();
  look_for_dead();
} catch (const DistError&) {  // the store is gone, and nobody can be told
}

// Of ranks on this host: who ends has written before that it left, or never does.
void StoreControl::look_for_dead() {
  if (broken()) return;
  for (const Member& member : members_) {
    if (!has_ended(member)) continue;
    if (store_->try_get(beat_key(member.rank), kStorePatience) == kLeft) continue;
    fail(failure_about(member.rank, Code::peer_died,
                       name_of(member.rank) + " ended without leaving the group"));
    return;
  }
}

void StoreControl::tick() {
  own_.heartbeat_ns.store(steady_ns(), std::memory_order_relaxed);
  MutexLock lock(look_mutex_);
  if (looking_ || (leaving_ && !store_answers_) || ++ticks_ < kTicksPerLook) return;
  ticks_ = 0;
  looking_ = of_this_process<Lookers>().add([this] { look(); });
  if (!looking_ && store_answers_.exchange(false))
    log(LogLevel::warn,
        "group \"{}\", rank {}: of failures of its peers nothing is known: no "
        "thread could be started to look; raise ulimit -u",
        group_, rank_);
}

void StoreControl::end_looks() noexcept {
  MutexLock lock(look_mutex_);
  while (looking_) looked_.wait(look_mutex_);
}

void StoreControl::look() noexcept {
  try {
    watch_library(kTicksPerLook);
    tell();
    if (!broken()) {
      look_for_cause();
      look_for_dead();
      if (++looks_ % kLooksPerBeat == 0) {
        beat();
        look_for_beats();
        warn_of_late_op(
            [this](const Recorded& record) { return behind(record.signature, record.sequence); });
      }
      store_answers_ = true;
    }
  } catch (const std::exception& error) {
    if (store_answers_.exchange(false))
      log(LogLevel::warn, "group \"{}\", rank {}: of failures of its peers nothing is known: {}",
          group_, rank_, error.what());
  }
  MutexLock lock(look_mutex_);
  looking_ = false;
  looked_.notify_all();
}

}  // namespace

std::shared_ptr<ControlPlane> make_store_control(const ControlOptions& options) {
  return join_by<StoreControl>(
      options, [&options](Joining&) { return std::make_shared<StoreControl>(options); },
      [&options](const std::shared_ptr<StoreControl>& control, Joining& joining) {
        control->join(options, joining);
        watch(control);
      });
}

}  // namespace c10d::inline v0
