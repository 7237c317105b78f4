// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/mesh_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "src/base/failure_text.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/members.h"
#include "src/control/call_rows.h"
#include "src/control/dissemination.h"
#include "src/control/group_formation.h"
#include "src/control/pair_counts.h"
#include "src/control/store_silence.h"
#include "src/net/bytes.h"
#include "src/net/mesh.h"
#include "src/net/network.h"
#include "src/recorder/flight_recorder.h"
#include "src/store/host_of.h"
#include "src/sync/process_singleton.h"
#include "src/sync/thread_pool.h"
#include "src/sync/wait.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr int kTicksPerPoll = 10;  // of the monitor, between polls of the store
constexpr int kPollsPerLook = 5;   // between looks at who left, and at late ops
// For a store to say which failure was first. Without an answer the own one is.
constexpr std::chrono::milliseconds kCausePatience{250};
constexpr double kCutOffSeconds =
    1.5;  // seconds without an answer, of tune_tcp(), until a host is lost

// Frames of the mesh; each rank passes on what is new to it.
enum MeshFrame : std::uint8_t {
  revoke_frame = 1,  // the failure that broke the group, as text
  left_frame,        // a rank left in good order: its number, its last call and last barrier
  call_frame,        // of dissemination.h, between two neighbours
  barrier_frame
};
constexpr std::uint8_t frame_of(Gate gate) {
  return static_cast<std::uint8_t>(call_frame + static_cast<int>(gate));
}

// A rank that waits polls its connections for so long, then sleeps on them, and looks now and then.
constexpr std::chrono::milliseconds kPolls{1}, kSleep{20};
constexpr std::chrono::milliseconds kAsking{100};  // who has come to a call, for a message

// For the polls of all groups. A store that does not answer holds a thread for each group that uses
// it; beyond so many, groups wait for each other.
class StorePollers : public ThreadPool {
 public:
  StorePollers() : ThreadPool(16, kOnePerGroup) {}

 private:
  static constexpr std::size_t kOnePerGroup = std::size_t{1} << 20;
};

class MeshControl final : public ControlPlane {
 public:
  explicit MeshControl(const ControlOptions& options)
      : ControlPlane(options, memory_for(options, options.rank, 1), options.rank),
        store_(options.store),
        mesh_({.rank = options.rank,
               .size = options.size,
               .group = options.group,
               .token = options.token,
               .address = address_for_others(hosts_of(options))}),
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
    const auto mesh_key = [](int rank) { return fmt::format("mesh/{}", rank); };
    store_->set(mesh_key(rank_), mesh_.address(), patience_until(options.deadline));
    store_->set(beat_key(rank_), kBeat, patience_until(options.deadline));
    formation.await(keys_of("beat"));
    try {
      mesh_.connect(
          [&](int rank) { return store_->get(mesh_key(rank), patience_until(options.deadline)); },
          [&] {
            if (const auto cause = formation.failure()) throw_failure(*cause);
          },
          options.deadline);
    } catch (const DistError& error) {
      throw_failure(about_neighbour(error.failure()));
    }
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
  std::vector<int> ranks_that_left() override;
  void end_polls() noexcept override;
  bool has_left(int peer) const noexcept override {
    return left_peers_[static_cast<std::size_t>(peer)].load(std::memory_order_relaxed);
  }
  void tick() override;
  void look_for_evidence() override;

 private:
  void poll() noexcept;
  Failure late(const Signature& signature, std::uint64_t sequence, std::string_view phase) override;
  void look_for_cause(Duration patience = kStorePatience);
  void look_for_dead();
  // What neighbours have said, and which of them are lost. Waits for nobody.
  void take_news();
  void take_message(const Mesh::Message& message);
  bool take_letter(const Mesh::Message& message);
  bool take_left(const Mesh::Message& message);
  void look_for_lost();
  Failure lost(const Mesh::Loss& loss) const;
  Failure about_neighbour(Failure failure) const;
  // Breaks the group here, and on the others by the mesh.
  void break_group(const Failure& failure);
  bool note_left(int peer) noexcept;
  bool is_where_it_broke(int rank);
  void write_rows(Duration patience) noexcept;
  void keep_for_later(const Failure& failure);
  void tell(Duration patience = kStorePatience);  // what was kept
  // Of every rank, under its number.
  std::vector<std::string> keys_of(std::string_view what) const {
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank) all.push_back(fmt::format("{}/{}", what, rank));
    return all;
  }
  // Whom the address of this rank must reach.
  static std::vector<std::string> hosts_of(const ControlOptions& options) {
    std::vector<std::string> hosts{host_of(*options.store)};
    for (const Member& member : options.members)
      if (!member.same_host) hosts.push_back(member.host);
    constexpr std::size_t kMost = 3;  // a name server may be slow
    hosts.resize(std::min(hosts.size(), kMost));
    return hosts;
  }
  static std::string beat_key(int rank) { return fmt::format("beat/{}", rank); }
  // How a rank enters a call, or passes a barrier.
  struct Entrance {
    Gate gate;
    Coming own;
    Deadline deadline;
    bool polls;                                                       // before it sleeps
    std::string name;                                                 // "all_reduce #3"
    std::function<Failure(const std::vector<int>& missing)> is_late;  // at the deadline
    const AllToAllV* counts = nullptr;
  };
  Entrance entrance_of(const Call& call, Waiting waiting);
  std::shared_ptr<const Failure> enter(const Entrance& entrance);
  bool come(Gate gate, const Coming& own);
  // The failure of a call that this rank came to and does not go into. Breaks the group.
  std::shared_ptr<const Failure> refuse(const Entrance& entrance, Patience::Verdict verdict);
  Failure misfit(const Entrance& entrance);
  // With what is known of calls, or barriers, then sends what there is to send.
  template <class Use>
  auto use(Gate gate, const Use& use_it) {
    MutexLock lock(gates_mutex_);
    Dissemination& known = gates_[static_cast<std::size_t>(gate)];
    auto result = use_it(known);
    for (const Dissemination::Letter& letter : known.take_letters())
      mesh_.send(letter.to, frame_of(gate), letter.body);
    return result;
  }
  void wait_for_news(Deadline start, bool polls, Deadline deadline);
  const AnnouncedSlot& announced(int rank, std::uint64_t sequence) const noexcept override {
    return rows_.slot(rank, sequence);
  }
  void visit_calls(int rank, const std::function<void(const Recorded&)>& visit) override {
    rank == rank_ ? visit_records(own_, visit) : rows_.visit_messages(rank, visit);
  }
  void want_calls(int rank) noexcept override { rows_.want_messages(rank); }
  void look_for_left_peers();
  void look_for_left_in_rows();
  std::vector<int> behind(const Signature& signature, std::uint64_t sequence);
  std::vector<int> ask(std::uint64_t sequence);  // who is not known to have come
  void read_beats();

  const std::shared_ptr<Store> store_;
  const WaitPolicy policy_ =
      wait_policy(static_cast<int>(
                      std::ranges::count_if(members_, [](const Member& m) { return m.same_host; })),
                  allowed_cpus());
  Mesh mesh_;
  CallRows rows_;
  Mutex gates_mutex_;
  std::array<Dissemination, kGates> gates_ C10D_GUARDED_BY(gates_mutex_){
      Dissemination(rank_, size_), Dissemination(rank_, size_)};
  std::atomic<int> waiting_ = 0;  // threads that take the news themselves
  Mutex mutex_;
  std::vector<Mesh::Loss> losses_ C10D_GUARDED_BY(mutex_);     // whose reason is not known
  std::optional<std::string> untold_ C10D_GUARDED_BY(mutex_);  // a failure as text
  // One poll at a time:
  Mutex poll_mutex_;
  CondVar polled_;
  bool polling_ C10D_GUARDED_BY(poll_mutex_) = false;
  // For the thread that polls: these two.
  int polls_ = 0;
  StoreSilence silence_;
  std::vector<std::atomic<bool>> left_peers_ =
      std::vector<std::atomic<bool>>(static_cast<std::size_t>(size_));  // as far as known
  std::atomic<bool> store_answers_ = true;                              // when it was polled last
  std::atomic<bool> leaving_ = false;
  // Since the last poll. A thread that has a failure to report sets it.
  std::atomic<int> ticks_ = 0;
  std::atomic<bool> left_ = false;
};

// A rank that leaves because a rank of its host died reports that first, or the others would name
// the rank that left.
void MeshControl::leave() noexcept try {
  leaving_ = true;
  const Duration patience = store_answers_ ? Duration(kStorePatience) : Duration::zero();
  try {
    if (store_answers_) look_for_dead();
    tell(patience);
  } catch (const DistError&) {  // the store is gone, and the others learn it by the mesh
  }
  write_rows(patience);
  if (left_.exchange(true)) return;
  own_.presence.store(Presence::left, std::memory_order_release);
  std::string word;
  put(word, static_cast<std::uint32_t>(rank_));
  for (const Gate gate : {Gate::calls, Gate::barriers})
    put(word, use(gate, [](Dissemination& known) { return known.last(); }));
  take_news();  // what is not read when a connection is closed may take this word with it
  mesh_.send_to_all(left_frame, word);
  // One that does not answer now takes the request when it runs again.
  store_->set(beat_key(rank_), kLastBeat, patience);
} catch (const std::exception&) {  // the store is gone
}

// A rank that leaves says so even if the others do not see its last calls.
void MeshControl::write_rows(Duration patience) noexcept try {
  rows_.write_row(patience);
  rows_.write_messages(patience);
} catch (const std::exception& error) {
  log(LogLevel::info, "group \"{}\", rank {}: its last calls were not told: {}", group_, rank_,
      error.what());
}

// A message may still be on its way from a rank that has left.
void MeshControl::look_for_left_peers() {
  const std::vector<int> gone = ranks_that([this](int rank) { return has_left(rank); });
  if (gone.empty()) return;
  const std::int64_t a_second_ago = steady_ns() - 1'000'000'000;
  const bool all_left = std::ssize(gone) == size_ - 1;
  visit_records(own_, [&](const Recorded& record) {
    if (record.state != Record::running || !is_point_to_point(record.signature.kind) ||
        record.start_ns >= a_second_ago)
      return;
    int peer = record.signature.root;
    if (peer == kAnySource && all_left) peer = rank_ == 0 ? 1 : 0;
    if (peer >= 0 && peer < size_ && has_left(peer))
      fail(ControlPlane::left(
          peer, fmt::format("{} #{}", to_string(record.signature.kind), record.sequence)));
  });
  look_for_left_in_rows();
}

// A rank writes its row before it leaves.
void MeshControl::look_for_left_in_rows() {
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

std::vector<int> MeshControl::ranks_that_left() {
  take_news();
  return ranks_that([this](int rank) { return rank != rank_ && has_left(rank); });
}

bool MeshControl::come(Gate gate, const Coming& own) {
  return use(gate, [&](Dissemination& known) { return known.come(own); });
}

MeshControl::Entrance MeshControl::entrance_of(const Call& call, Waiting waiting) {
  const Signature signature = signature_of(call.op, size_);
  const auto* const counts = std::get_if<AllToAllV>(&call.op);
  return {.gate = Gate::calls,
          .own = {.sequence = call.sequence,
                  .hash = call.signature,
                  .balance = counts ? balance_of(*counts, rank_) : 0,
                  .signature = signature},
          .deadline = call.deadline,
          .polls = waiting == Waiting::spin && policy_.spins(),
          .name = fmt::format("{} #{}", to_string(signature.kind), call.sequence),
          .is_late =
              [this, signature, sequence = call.sequence](const std::vector<int>& missing) {
                return deadline_passed(signature, sequence,
                                       "waiting for all ranks to enter the call", missing);
              },
          .counts = counts};
}

std::shared_ptr<const Failure> MeshControl::enter(const Entrance& entrance) {
  // A rank that has announced a call enters it: the others may have gone in.
  const auto last = use(entrance.gate, [](Dissemination& known) { return known.last(); });
  if (last != entrance.own.sequence && broken()) return failure();
  const auto start = steady_clock::now();
  if (!come(entrance.gate, entrance.own)) return failure_of_another();
  struct Counted {
    std::atomic<int>& count;
    explicit Counted(std::atomic<int>& threads) : count(threads) { ++count; }
    ~Counted() { --count; }
  } const counted(waiting_);
  Patience patience(entrance.deadline);
  while (true) {
    take_news();
    const Patience::Verdict verdict = use(entrance.gate, [&](Dissemination& known) {
      return patience.look(known, steady_clock::now(), broken(),
                           [this](int rank) { return broken() && is_where_it_broke(rank); });
    });
    if (verdict == Patience::Verdict::goes) return nullptr;
    if (verdict != Patience::Verdict::waits) return refuse(entrance, verdict);
    wait_for_news(start, entrance.polls, entrance.deadline);
  }
}

// The deadline may have passed.
void MeshControl::wait_for_news(Deadline start, bool polls, Deadline deadline) {
  const auto now = steady_clock::now();
  if (polls && now < start + kPolls) return pause_cpu();
  constexpr std::chrono::milliseconds kShort{1};
  const Duration nap = waiting_ > 1 ? kShort : kSleep;
  mesh_.wait(std::clamp<Deadline>(deadline, now + kShort, now + nap));
}

std::shared_ptr<const Failure> MeshControl::refuse(const Entrance& entrance,
                                                   Patience::Verdict verdict) {
  const std::uint64_t sequence = entrance.own.sequence;
  switch (verdict) {
    case Patience::Verdict::differs: {
      const auto [peer, theirs] =
          use(entrance.gate, [](Dissemination& known) { return known.difference(); });
      return fail(mismatch(entrance.own.signature, peer, theirs.signature, peer, {}, sequence));
    }
    case Patience::Verdict::unbalanced:
      return fail(misfit(entrance));
    case Patience::Verdict::left: {
      const auto peer =
          use(entrance.gate, [](Dissemination& known) { return known.left_before(); });
      return fail(ControlPlane::left(*peer, entrance.name));
    }
    case Patience::Verdict::late: {
      const auto missing =
          use(entrance.gate, [&](Dissemination& known) { return known.missing(sequence); });
      return fail(name_not_running(entrance.is_late(missing), members_, missing));
    }
    case Patience::Verdict::barred:
      return failure_of_another();
    default:
      return failure();
  }
}

// All ranks are here: the store shows them which pair it is.
Failure MeshControl::misfit(const Entrance& entrance) try {
  const std::uint64_t sequence = entrance.own.sequence;
  const std::vector<std::string> keys = keys_of(fmt::format("counts/{}", sequence));
  store_->set(keys[static_cast<std::size_t>(rank_)], to_bytes(*entrance.counts), kStorePatience);
  std::vector<PairCounts> all;
  for (const std::string& bytes : store_->multi_get(keys, kStorePatience)) {
    auto counts = read_pair_counts(bytes, size_);
    if (!counts)
      return failure_about(static_cast<int>(all.size()), Code::corrupt,
                           "the counts of an all_to_all_v in the store are those of no rank");
    all.push_back(*std::move(counts));
  }
  const auto first = first_misfit(all);
  return first ? counts_mismatch(sequence, first->sender, first->receiver, first->expected,
                                 first->sent)
               : counts_do_not_fit(sequence);
} catch (const DistError&) {  // the store says nothing
  return counts_do_not_fit(entrance.own.sequence);
}

// Whether nothing more is to be heard from a rank, by what broke the group.
bool MeshControl::is_where_it_broke(int rank) {
  const auto cause = failure();
  if (cause->code != Code::peer_died) return false;
  const Member& member = members_[static_cast<std::size_t>(rank)];
  return rank == cause->rank || (!member.same_host && member.host == cause->host);
}

std::shared_ptr<const Failure> MeshControl::agree(const Call& call, Waiting waiting) {
  return enter(entrance_of(call, waiting));
}

void MeshControl::announce(const Call& call) {
  if (!broken()) come(Gate::calls, entrance_of(call, Waiting::sleep).own);
}

Control::Agreement MeshControl::poll_agreement(const Call& call) {
  take_news();
  const Patience::Verdict verdict = use(Gate::calls, [](Dissemination& known) {
    return Patience(Deadline::max()).look(known, steady_clock::now(), false, {});
  });
  if (verdict == Patience::Verdict::goes) return Agreement::agreed;
  if (broken()) return Agreement::failed;
  if (verdict == Patience::Verdict::waits) return Agreement::pending;
  refuse(entrance_of(call, Waiting::sleep), verdict);
  return Agreement::failed;
}

std::shared_ptr<const Failure> MeshControl::barrier(Deadline deadline) {
  const std::uint64_t round = own_.barriers.load() + 1;
  if (!broken()) come(Gate::barriers, {.sequence = round});
  own_.barriers.store(round);
  return enter({.gate = Gate::barriers,
                .own = {.sequence = round},
                .deadline = deadline,
                .polls = policy_.spins(),
                .name = "monitored_barrier",
                .is_late = [this, round](const std::vector<int>& missing) {
                  return did_not_reach_barrier(missing, round);
                }});
}

// A slot of this rank is free once its call is compared: the row has it until then.
std::shared_ptr<const Failure> MeshControl::announce_in_order(const Call& call,
                                                              const Signature& signature) {
  constexpr std::chrono::microseconds kLook{200};
  rows_.start();
  while (own_.compared.load(std::memory_order_acquire) + kAnnounced < call.sequence) {
    if (broken()) return failure();
    if (steady_clock::now() >= call.deadline) {
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

Control::Agreement MeshControl::poll_enqueued(std::uint64_t sequence) {
  if (own_.compared.load(std::memory_order_acquire) >= sequence) return Agreement::agreed;
  if (broken()) return Agreement::failed;
  rows_.want();
  return Agreement::pending;
}

// The store decides which failure was first, so that all ranks have one cause.
std::shared_ptr<const Failure> MeshControl::fail(Failure failure_value) {
  if (broken()) return failure();
  try {
    const std::string mine = to_text(failure_value);
    const auto first = store_->compare_set("cause", std::nullopt, mine, kCausePatience);
    break_group(from_text(first.value_or(mine)));
  } catch (const std::exception& error) {
    log(LogLevel::info, "group \"{}\": the store could not be told of a failure yet: {}", group_,
        error.what());
    keep_for_later(failure_value);
    break_group(failure_value);
  }
  return failure();
}

// The store may take long to answer: the monitor tells it.
std::shared_ptr<const Failure> MeshControl::revoke(Failure failure_value) {
  if (broken()) return failure();
  keep_for_later(failure_value);
  break_group(failure_value);
  return failure();
}

void MeshControl::break_group(const Failure& failure_value) {
  write_cause(header_, failure_value);
  mesh_.send_to_all(revoke_frame, to_text(*failure()));
}

void MeshControl::keep_for_later(const Failure& failure) {
  MutexLock lock(mutex_);
  if (!untold_) untold_ = to_text(failure);
  ticks_ = kTicksPerPoll;
}

void MeshControl::tell(Duration patience) {
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
void MeshControl::look_for_cause(Duration patience) {
  if (broken()) return;
  if (const std::optional<std::string> text = store_->try_get("cause", patience))
    break_group(from_text(*text));
}

void MeshControl::take_message(const Mesh::Message& message) {
  if (message.type == revoke_frame) {
    if (broken()) return;
    write_cause(header_, from_text(message.body));
    return mesh_.send_to_all(revoke_frame, message.body, message.from);
  }
  const bool is_sound = message.type == left_frame ? take_left(message)
                        : message.type == call_frame || message.type == barrier_frame
                            ? take_letter(message)
                            : false;
  if (!is_sound)
    fail(failure_about(message.from, Code::corrupt,
                       name_of(message.from) + " sent what no rank of a group sends"));
}

bool MeshControl::take_letter(const Mesh::Message& message) {
  const Gate gate = message.type == call_frame ? Gate::calls : Gate::barriers;
  return use(gate, [&](Dissemination& known) { return known.receive(message.from, message.body); });
}

bool MeshControl::take_left(const Mesh::Message& message) {
  ByteReader reader(message.body);
  const auto peer = reader.take<std::uint32_t>();
  std::array<std::uint64_t, kGates> last{};
  for (std::uint64_t& sequence : last) sequence = reader.take<std::uint64_t>();
  if (!reader.finished() || peer >= static_cast<unsigned>(size_)) return false;
  for (const Gate gate : {Gate::calls, Gate::barriers})
    use(gate, [&](Dissemination& known) {
      known.leave(static_cast<int>(peer), last[static_cast<std::size_t>(gate)]);
      return true;
    });
  if (note_left(static_cast<int>(peer))) mesh_.send_to_all(left_frame, message.body, message.from);
  return true;
}

// Whether that is news.
bool MeshControl::note_left(int peer) noexcept {
  return !left_peers_[static_cast<std::size_t>(peer)].exchange(true, std::memory_order_relaxed);
}

// Between ranks that left, the word of another one may not get through: the store has it, too.
void MeshControl::read_beats() {
  if (ranks_that([this](int rank) { return has_left(rank); }).empty()) return;
  const std::vector<std::string> values = store_->multi_get(keys_of("beat"), kStorePatience);
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && values[static_cast<std::size_t>(peer)] == kLastBeat) note_left(peer);
}

void MeshControl::take_news() {
  const Mesh::News news = mesh_.drive();
  for (const Mesh::Message& message : news.messages) take_message(message);
  if (news.losses.empty()) return;
  {
    MutexLock lock(mutex_);
    losses_.insert(losses_.end(), news.losses.begin(), news.losses.end());
  }
  ticks_ = kTicksPerPoll;
}

// A neighbour whose end was not heard may have told the store that it left.
void MeshControl::look_for_lost() {
  std::vector<Mesh::Loss> losses;
  {
    MutexLock lock(mutex_);
    losses.swap(losses_);
  }
  for (const Mesh::Loss& loss : losses) {
    if (broken() || has_left(loss.neighbour)) continue;
    try {
      if (store_->try_get(beat_key(loss.neighbour), kCausePatience) == kLastBeat) {
        note_left(loss.neighbour);
        continue;
      }
    } catch (const DistError&) {  // it may have served the store
    }
    fail(lost(loss));
  }
}

Failure MeshControl::lost(const Mesh::Loss& loss) const {
  const std::string& host = members_[static_cast<std::size_t>(loss.neighbour)].host;
  if (!loss.cut_off)
    return failure_about(
        loss.neighbour, Code::peer_died,
        fmt::format("{} ended without leaving the group ({})", name_of(loss.neighbour), loss.why));
  const auto there =
      ranks_that([&](int rank) { return members_[static_cast<std::size_t>(rank)].host == host; });
  return failure_about(
      loss.neighbour, Code::peer_died,
      fmt::format("no answer from host {} with rank{} {} for {:.1f} s ({}): it is "
                  "down or cut off, or this host, {}, is",
                  host, there.size() == 1 ? "" : "s", ranges_of(there), kCutOffSeconds, loss.why,
                  members_[static_cast<std::size_t>(rank_)].host));
}

Failure MeshControl::about_neighbour(Failure failure) const {
  if (failure.rank < 0 || failure.rank >= size_ || !failure.host.empty()) return failure;
  const Member& member = members_[static_cast<std::size_t>(failure.rank)];
  failure.host = member.host;
  failure.pid = member.pid;
  return failure;
}

Failure MeshControl::late(const Signature& signature, std::uint64_t sequence,
                          std::string_view phase) {
  const std::vector<int> missing = behind(signature, sequence);
  return name_not_running(deadline_passed(signature, sequence, phase, missing), members_, missing);
}

// The ranks that have not come to this call.
std::vector<int> MeshControl::behind(const Signature& signature, std::uint64_t sequence) {
  std::vector<int> ranks{signature.root};
  if (!is_point_to_point(signature.kind))
    ranks = signature.device == DeviceType::cuda ? rows_.behind(sequence) : ask(sequence);
  std::erase_if(ranks, [this](int rank) { return rank < 0 || rank == rank_; });
  return ranks;
}

std::vector<int> MeshControl::ask(std::uint64_t sequence) {
  std::vector<int> missing = use(Gate::calls, [&](Dissemination& known) {
    known.ask(sequence, false);
    return known.missing(sequence);
  });
  for (const auto end = steady_clock::now() + kAsking;
       !missing.empty() && steady_clock::now() < end;) {
    mesh_.wait(steady_clock::now() + std::chrono::milliseconds(1));
    take_news();
    missing = use(Gate::calls, [&](Dissemination& known) { return known.missing(sequence); });
  }
  return missing;
}

void MeshControl::look_for_evidence() try {
  take_news();
  look_for_lost();
  look_for_cause();
  look_for_dead();
} catch (const DistError&) {  // the store is gone: no rank can be notified
}

// Of ranks on this host: a rank that ends has written before that it left, or never does.
void MeshControl::look_for_dead() {
  if (broken()) return;
  for (const Member& member : members_) {
    if (!has_ended(member)) continue;
    if (store_->try_get(beat_key(member.rank), kStorePatience) == kLastBeat) continue;
    fail(failure_about(member.rank, Code::peer_died,
                       name_of(member.rank) + " ended without leaving the group"));
    return;
  }
}

void MeshControl::tick() {
  own_.heartbeat_ns.store(steady_ns(), std::memory_order_relaxed);
  if (waiting_ == 0) take_news();
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

void MeshControl::end_polls() noexcept {
  rows_.stop();
  MutexLock lock(poll_mutex_);
  while (polling_) polled_.wait(poll_mutex_);
}

void MeshControl::poll() noexcept {
  const bool looks = ++polls_ % kPollsPerLook == 0;
  try {
    watch_library(kTicksPerPoll);
    look_for_lost();
    if (looks && !broken()) {
      look_for_left_peers();
      warn_of_late_op(
          [this](const Recorded& record) { return behind(record.signature, record.sequence); });
    }
    tell();
    if (!broken()) {
      look_for_cause();
      look_for_dead();
      if (looks) read_beats();
      store_answers_ = true;
    }
    silence_.end(steady_clock::now());
  } catch (const std::exception& error) {
    if (store_answers_.exchange(false))
      log(LogLevel::warn,
          "group \"{}\", rank {}: the store does not answer: {}; ops go on, but new_group, split "
          "and "
          "allocate need it, and collectives on GPUs",
          group_, rank_, error.what());
    if (silence_.is_long(steady_clock::now()) && ops_on_gpu() > 0)
      revoke(store_is_silent(group_, members_, error.what()));
  }
  MutexLock lock(poll_mutex_);
  polling_ = false;
  polled_.notify_all();
}

}  // namespace

std::shared_ptr<ControlPlane> make_mesh_control(const ControlOptions& options) {
  return join_by<MeshControl>(
      options, [&options](GroupFormation&) { return std::make_shared<MeshControl>(options); },
      [&options](const std::shared_ptr<MeshControl>& control, GroupFormation& formation) {
        control->join(options, formation);
        watch(control);
      });
}

}}  // namespace c10d::v0
