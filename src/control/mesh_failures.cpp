// SPDX-License-Identifier: BSD-3-Clause
// What ranks of several hosts hear and tell of failures, and of those that leave.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <utility>

#include "src/base/failure_text.h"
#include "src/base/log.h"
#include "src/base/members.h"
#include "src/control/mesh_control.h"
#include "src/recorder/flight_recorder.h"
#include "src/sync/process_singleton.h"
#include "src/sync/thread_pool.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr int kTicksPerPoll = 10;  // of the monitor, between polls of the store
constexpr int kPollsPerLook = 5;   // between looks at who left
// Between beats of the links: 0.2 s. A probe of an idle connection would be sent once, and
// its loss would end the connection.
constexpr int kTicksPerBeat = 10;
// For a store to answer where a failure is known and others are to hear of it.
constexpr std::chrono::milliseconds kGlance{100};
constexpr std::chrono::seconds kLastWord{3};  // for a network to be left
constexpr std::chrono::milliseconds kLastLook{1};
constexpr std::string_view kNoAnswer = "no answer from host";
constexpr double kCutOffSeconds = 1.5;  // without an answer, of tune_tcp(), until a host is lost

// Threads for all groups of this process. A store that does not answer holds one for each group
// that uses it; beyond so many, groups wait for each other.
class GroupThreads : public ThreadPool {
 public:
  GroupThreads() : ThreadPool(16, kOnePerGroup) {}

 private:
  static constexpr std::size_t kOnePerGroup = std::size_t{1} << 20;
};
class StorePollers : public GroupThreads {};
class StoreQuestions : public GroupThreads {};  // of threads that do not wait to the end
class Reactions : public GroupThreads {};       // which wait for these questions, and not for long

// What `ask` returns, if it does within `patience`. It goes on in another thread, and then its
// result is lost.
template <class Ask>
auto ask_within(Duration patience, Ask ask) -> std::optional<decltype(ask())> {
  struct Answer {
    Mutex mutex;
    CondVar came;
    bool over C10D_GUARDED_BY(mutex) = false;
    std::optional<decltype(ask())> value C10D_GUARDED_BY(mutex);
  };
  const auto answer = std::make_shared<Answer>();
  const bool asks = of_this_process<StoreQuestions>().add([answer, ask = std::move(ask)] {
    std::optional<decltype(ask())> value;
    try {
      value = ask();
    } catch (const std::exception&) {  // it does not answer
    }
    MutexLock lock(answer->mutex);
    answer->value = std::move(value);
    answer->over = true;
    answer->came.notify_all();
  });
  const Deadline end = steady_clock::now() + patience;
  MutexLock lock(answer->mutex);
  while (asks && !answer->over && steady_clock::now() < end)
    answer->came.wait_for(answer->mutex, end - steady_clock::now());
  return answer->value;
}

// The first failure of all, as text.
std::optional<std::string> first_cause(const std::shared_ptr<Store>& store,
                                       const std::string& text) {
  return ask_within(kGlance, [store, text] {
    return store->compare_set("cause", std::nullopt, text, kStorePatience).value_or(text);
  });
}

}  // namespace

Flood::Ends MeshControl::ends_of_flood() {
  return {.send = [this](MeshFrame frame, std::string_view body,
                         int except) { mesh_.send_to_all(frame, body, except); },
          .broken = [this] { return broken(); },
          .break_here = [this](const Failure& cause) { write_cause(header_, cause); },
          .left =
              [this](int peer, const Flood::LastCalls& last) {
                MutexLock lock(gates_mutex_);
                for (std::size_t gate = 0; gate < kGates; ++gate)
                  gates_[gate].leave(peer, last[gate]);
              },
          .awaits_end =
              [this](bool awaits) {
                MutexLock lock(gates_mutex_);
                for (Dissemination& known : gates_) known.hold_answers(awaits);
              }};
}

// The store decides which failure was first, so that all ranks have one cause. Without its answer
// this one is.
std::shared_ptr<const Failure> MeshControl::fail(Failure failure_value) {
  if (broken()) return failure();
  const auto first = first_cause(store_, Flood::text_of(failure_value));
  if (!first) keep_for_later(failure_value, true);
  flood_.break_group(first ? from_text(*first) : failure_value);
  return failure();
}

std::shared_ptr<const Failure> MeshControl::revoke(Failure failure_value) {
  if (broken()) return failure();
  keep_for_later(failure_value, false);
  write_cause(header_, failure_value);
  react();
  return failure();
}

void MeshControl::keep_for_later(const Failure& failure, bool is_flooded) {
  MutexLock lock(mutex_);
  if (!untold_) untold_ = Untold{Flood::text_of(failure), is_flooded};
}

void MeshControl::tell() noexcept try {
  std::optional<Untold> untold;
  {
    MutexLock lock(mutex_);
    untold = untold_;
  }
  if (!untold) return;
  const auto first = first_cause(store_, untold->text);
  if (!untold->is_flooded) mesh_.send_to_all(revoke_frame, first.value_or(untold->text));
  MutexLock lock(mutex_);
  if (first)
    untold_.reset();
  else if (untold_)
    untold_->is_flooded = true;
} catch (const std::exception& error) {
  log(LogLevel::warn, "group \"{}\", rank {}: a failure was not told: {}", group_, rank_,
      error.what());
}

void MeshControl::react() noexcept {
  {
    MutexLock lock(poll_mutex_);
    ++reactions_;
  }
  const auto end = [this] {
    MutexLock lock(poll_mutex_);
    --reactions_;
    polled_.notify_all();
  };
  const auto look = [this, end] {
    tell();
    try {
      look_for_lost();
    } catch (const std::exception& error) {
      log(LogLevel::warn, "group \"{}\", rank {}: a loss was not looked at: {}", group_, rank_,
          error.what());
    }
    end();
  };
  if (!of_this_process<Reactions>().add(look)) look();
}

void MeshControl::take_news() {
  std::optional<int> wrong;  // a neighbour
  bool has_losses = false;
  {
    MutexLock lock(news_mutex_);
    Mesh::News news = mesh_.drive();
    has_losses = !news.losses.empty();
    for (const Mesh::Message& message : news.messages)
      if (!take_message(message)) wrong = message.from;
    for (const Mesh::Loss& loss : news.losses)
      flood_.lose(loss.neighbour, loss.kind == Mesh::Loss::Kind::ended);
    if (has_losses) {
      MutexLock losses(mutex_);
      std::ranges::move(news.losses, std::back_inserter(losses_));
    }
    if (!news.messages.empty() || has_losses) {
      MutexLock gates(gates_mutex_);
      for (const Gate gate : {Gate::calls, Gate::barriers}) post(gate);
    }
  }
  if (has_losses) react();
  if (wrong)
    revoke(failure_about(*wrong, Code::corrupt,
                         name_of(*wrong) + " sent what no rank of a group sends"));
}

// Whether a rank can have sent it.
bool MeshControl::take_message(const Mesh::Message& message) {
  unheard_ticks_[static_cast<std::size_t>(message.from)].store(0, std::memory_order_relaxed);
  switch (message.type) {
    case call_frame:
    case barrier_frame:
      return take_letter(message);
    case beat_frame:
      return message.body.empty();
    default:
      return flood_.take(message.from, message.type, message.body);
  }
}

bool MeshControl::take_letter(const Mesh::Message& message) {
  const Gate gate = message.type == call_frame ? Gate::calls : Gate::barriers;
  MutexLock lock(gates_mutex_);
  return gates_[static_cast<std::size_t>(gate)].receive(message.from, message.body);
}

// What the store has of a rank: "here", or "left", its last call and its last barrier.
void MeshControl::note_beat(int peer, std::string_view beat) {
  if (!beat.starts_with(kLastBeat) || has_left(peer)) return;
  beat.remove_prefix(kLastBeat.size());
  Flood::LastCalls last{};
  for (std::uint64_t& sequence : last) {
    beat.remove_prefix(std::min(beat.find_first_not_of(' '), beat.size()));
    const auto read = std::from_chars(beat.data(), beat.data() + beat.size(), sequence);
    beat.remove_prefix(static_cast<std::size_t>(read.ptr - beat.data()));
  }
  flood_.note_left(peer, last);
}

// A rank that leaves because a rank of its host died reports that first, or the others would name
// the rank that left.
void MeshControl::leave() noexcept try {
  leaving_ = true;
  const Duration patience = !store_answers_ ? Duration::zero()
                            : broken()      ? Duration(kGlance)
                                            : Duration(kStorePatience);
  look_for_dead();
  tell();
  write_rows(patience);
  if (own_.presence.exchange(Presence::left) == Presence::left) return;
  Flood::LastCalls last{};
  for (const Gate gate : {Gate::calls, Gate::barriers})
    last[static_cast<std::size_t>(gate)] =
        use(gate, [](Dissemination& known) { return known.last(); });
  take_news();  // what is not read when a connection is closed may take this word with it
  flood_.leave(last);
  // Of several networks one may have been cut: then only this rank can send that word again.
  const Deadline heard =
      steady_clock::now() + (mesh_.has_several_networks() ? kLastWord : Duration());
  while (steady_clock::now() < heard && !mesh_.is_acknowledged()) {
    mesh_.wait(std::min<Deadline>(heard, steady_clock::now() + kLastLook));
    take_news();
  }
  // One that does not answer now takes the request when it runs again.
  store_->set(beat_key(rank_), fmt::format("{} {}", kLastBeat, fmt::join(last, " ")), patience);
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

std::vector<int> MeshControl::ranks_that_left() {
  take_news();
  return ranks_that([this](int rank) { return rank != rank_ && has_left(rank); });
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

// Between ranks that left, the word of another one may not get through: the store has it, too.
void MeshControl::read_beats() {
  if (ranks_that([this](int rank) { return has_left(rank); }).empty()) return;
  const std::vector<std::string> values = store_->multi_get(keys_of("beat"), kStorePatience);
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) note_beat(peer, values[static_cast<std::size_t>(peer)]);
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
    if (loss.kind == Mesh::Loss::Kind::ended)
      note_beat(loss.neighbour, glance_at(beat_key(loss.neighbour)));
    if (!has_left(loss.neighbour)) fail(lost(loss));
  }
}

Failure MeshControl::lost(const Mesh::Loss& loss) const {
  const int neighbour = loss.neighbour;
  const std::string& host = members_[static_cast<std::size_t>(neighbour)].host;
  switch (loss.kind) {
    case Mesh::Loss::Kind::ended:
      return failure_about(
          neighbour, Code::peer_died,
          fmt::format("{} ended without leaving the group ({})", name_of(neighbour), loss.why));
    case Mesh::Loss::Kind::corrupt:
      return failure_about(
          neighbour, Code::corrupt,
          fmt::format("the connection with {} is unusable: {}", name_of(neighbour), loss.why));
    case Mesh::Loss::Kind::cut_off:
      break;
  }
  // Ranks of a host may notice it at once, each by a connection of its own: they name the same
  // rank.
  const auto there = ranks_that([&](int rank) { return is_beside(neighbour, rank); });
  return failure_about(
      there.front(), Code::peer_died,
      fmt::format("{} {} with rank{} {} for {:.1f} s ({}): it is down or cut off, "
                  "or host {}, which noticed it, is",
                  kNoAnswer, host, there.size() == 1 ? "" : "s", ranges_of(there), kCutOffSeconds,
                  loss.why, members_[static_cast<std::size_t>(rank_)].host));
}

// Whether two ranks are on one host, as far as this rank knows: another host may have its name.
bool MeshControl::is_beside(int one, int other) const {
  if (one < 0 || one >= size_ || other < 0 || other >= size_) return false;
  const Member& first = members_[static_cast<std::size_t>(one)];
  const Member& second = members_[static_cast<std::size_t>(other)];
  return first.host == second.host && first.same_host == second.same_host;
}

// Whether nothing more is to be heard from a rank, by what broke the group.
bool MeshControl::is_where_it_broke(int rank) {
  const auto cause = failure();
  if (cause->code != Code::peer_died) return false;
  const bool is_cut_off = cause->message.starts_with(kNoAnswer);
  return rank == cause->rank || (is_cut_off && is_beside(cause->rank, rank));
}

// Takes over the failure that another rank published.
void MeshControl::look_for_cause() {
  if (broken()) return;
  if (const std::optional<std::string> text = store_->try_get("cause", kStorePatience))
    flood_.break_group(from_text(*text));
}

// The value of a key; empty if the store has none, or does not say so soon.
std::string MeshControl::glance_at(std::string key) const {
  return ask_within(kGlance,
                    [store = store_, key = std::move(key)] {
                      return store->try_get(key, kStorePatience).value_or("");
                    })
      .value_or("");
}

void MeshControl::look_for_evidence() {
  take_news();
  look_for_lost();
  if (broken()) return;
  if (const std::string cause = glance_at("cause"); !cause.empty())
    flood_.break_group(from_text(cause));
  look_for_dead();
}

// Of ranks on this host: a rank that ends has written before that it left, or never does.
void MeshControl::look_for_dead() {
  if (broken()) return;
  for (const Member& member : members_) {
    if (has_left(member.rank) || !has_ended(member)) continue;
    take_news();  // what it said before it ended
    if (broken()) return;
    if (has_left(member.rank)) continue;
    note_beat(member.rank, glance_at(beat_key(member.rank)));
    if (has_left(member.rank)) continue;
    {
      MutexLock news(news_mutex_);
      flood_.note_dead(member.rank);
    }
    fail(failure_about(member.rank, Code::peer_died,
                       name_of(member.rank) + " ended without leaving the group"));
    return;
  }
}

void MeshControl::tick() {
  own_.heartbeat_ns.store(steady_ns(), std::memory_order_relaxed);
  if (waiting_ == 0) take_news();
  if (!broken()) look_after_backend();
  for (const int neighbour : neighbours_)
    unheard_ticks_[static_cast<std::size_t>(neighbour)].fetch_add(1, std::memory_order_relaxed);
  if (++ticks_since_beat_ == kTicksPerBeat) {
    ticks_since_beat_ = 0;
    mesh_.send_to_all(beat_frame, {});
  }
  rows_.want();
  // A rank may wait inside NCCL for the other end, which learns of it by this.
  if (ops_on_gpu() > 0) rows_.want_messages(rank_);
  MutexLock lock(poll_mutex_);
  if (polling_ || (leaving_ && !store_answers_) || ++ticks_ < kTicksPerPoll) return;
  ticks_ = 0;
  polling_ = of_this_process<StorePollers>().add([this] { poll(); });
  if (!polling_ && store_answers_.exchange(false))
    log(LogLevel::warn,
        "group \"{}\", rank {}: failures of other ranks may not be noticed: no thread could be "
        "started to look; raise ulimit -u",
        group_, rank_);
}

// Ticks are counted, not seconds: a rank that was stopped itself has heard nothing.
bool MeshControl::is_silent(int rank) const noexcept {
  return unheard_ticks_[static_cast<std::size_t>(rank)].load(std::memory_order_relaxed) >
             kSilence / kMonitorPeriod &&
         !has_left(rank);
}

void MeshControl::end_polls() noexcept {
  rows_.stop();
  MutexLock lock(poll_mutex_);
  while (polling_ || reactions_ > 0) polled_.wait(poll_mutex_);
}

void MeshControl::poll() noexcept {
  const bool looks = ++polls_ % kPollsPerLook == 0;
  try {
    watch_library(kTicksPerPoll);
    tell();
    if (looks && !broken()) look_for_left_peers();
    if (!broken())
      warn_of_late_op(
          [this](const Recorded& record) { return behind(record.signature, record.sequence); });
    if (!broken()) {
      look_for_cause();
      look_for_dead();
      if (looks) read_beats();
      store_answers_ = true;
    }
    silence_.end(steady_clock::now());
  } catch (const std::exception& error) {
    if (store_answers_.exchange(false) && !broken())
      log(LogLevel::warn,
          "group \"{}\", rank {}: the store does not answer: {}; ops go on, but new_group, split "
          "and allocate need it, and so do collectives on GPUs",
          group_, rank_, error.what());
    if (silence_.is_long(steady_clock::now()) && ops_on_gpu() > 0)
      revoke(store_is_silent(group_, members_, error.what()));
  }
  MutexLock lock(poll_mutex_);
  polling_ = false;
  polled_.notify_all();
}

}}  // namespace c10d::v0
