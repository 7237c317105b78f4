// SPDX-License-Identifier: BSD-3-Clause
// How ranks of several hosts come together, and enter calls.
#include "src/control/mesh_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "src/base/host.h"
#include "src/base/members.h"
#include "src/control/pair_counts.h"
#include "src/net/network.h"
#include "src/recorder/flight_recorder.h"
#include "src/store/own_address.h"
#include "src/store/secret.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

// A rank that waits polls its connections for so long, then sleeps on them, and looks now and then.
constexpr std::chrono::milliseconds kPolls{1}, kNap{20}, kShortNap{1};
constexpr std::chrono::milliseconds kAsking{100};  // who has come to a call, for a message

constexpr std::uint8_t frame_of(Gate gate) {
  return gate == Gate::calls ? call_frame : barrier_frame;
}

// All ranks read the same names. If two hosts have the same, only the steps are more.
std::vector<std::string> hosts_of(const std::vector<Member>& members) {
  std::vector<std::string> hosts;
  for (const Member& member : members) hosts.push_back(member.host);
  return hosts;
}

int count_here(const std::vector<Member>& members) {
  return static_cast<int>(
      std::ranges::count_if(members, [](const Member& member) { return member.same_host; }));
}

Failure about(const std::vector<Member>& members, Failure failure) {
  if (failure.rank < 0 || failure.rank >= std::ssize(members) || !failure.host.empty())
    return failure;
  const Member& member = members[static_cast<std::size_t>(failure.rank)];
  return caused_by(member, std::move(failure));
}

}  // namespace

MeshControl::MeshControl(const ControlOptions& options)
    : ControlPlane(options, memory_for(options, options.rank, 1), options.rank),
      store_(options.store),
      policy_(wait_policy(count_here(options.members), allowed_cpus())),
      grid_(hosts_of(options.members)),
      neighbours_(grid_.neighbours_of(options.rank)),
      mesh_({.rank = options.rank,
             .neighbours = neighbours_,
             .role = "mesh",
             .group = options.group,
             .token = secret_of(*options.store, options.token, options.deadline),
             .address = own_address(*options.store, options.members),
             .has_more_networks = options.outlives_networks && chosen_networks().size() > 1}),
      flood_(rank_, size_, neighbours_, ends_of_flood()),
      rows_({.store = store_,
             .own = own_,
             .rank = rank_,
             .size = size_,
             .last_equal = [this](std::uint64_t compared) { return last_equal(compared); },
             .look_for_cause = [this] { look_for_cause(); },
             .broken = [this] { return broken(); },
             .fail = [this](const Failure& failure) { fail(failure); }}),
      gates_{Dissemination(rank_, grid_), Dissemination(rank_, grid_)},
      unheard_ticks_(static_cast<std::size_t>(size_)) {
  if (!mesh_.options().has_more_networks) return;
  const std::vector<Network> networks = chosen_networks();
  for (std::size_t i = 1; i < networks.size(); ++i) {
    Mesh::Options other = mesh_.options();
    other.role += fmt::format("-{}", i);
    other.address = networks[i].address;
    more_networks_.emplace_back(other);
  }
}

std::vector<std::string> MeshControl::keys_of(std::string_view what) const {
  std::vector<std::string> all;
  for (int rank = 0; rank < size_; ++rank) all.push_back(fmt::format("{}/{}", what, rank));
  return all;
}

std::string MeshControl::beat_key(int rank) { return fmt::format("beat/{}", rank); }

void MeshControl::join(const ControlOptions& options, GroupFormation& formation) {
  own_.presence.store(Presence::joined, std::memory_order_release);
  const std::vector<std::string> addresses = keys_of("mesh"), beats = keys_of("beat");
  const auto own = static_cast<std::size_t>(rank_);
  std::string listens = mesh_.address();
  if (!more_networks_.empty()) listens += " " + addresses_of(more_networks_);
  store_->set(addresses[own], listens, patience_until(options.deadline));
  store_->set(beats[own], kBeat, patience_until(options.deadline));
  formation.await(beats);
  std::vector<std::string> keys;
  for (const int neighbour : neighbours_)
    keys.push_back(addresses[static_cast<std::size_t>(neighbour)]);
  const std::vector<std::string> said =
      keys.empty() ? keys : store_->multi_get(keys, patience_until(options.deadline));
  // The links are on as many networks as both ranks have.
  const auto connect = [&](Mesh& mesh, std::size_t network) {
    mesh.connect(
        [&](int rank) {
          const auto at = std::ranges::find(neighbours_, rank) - neighbours_.begin();
          const std::vector<std::string> theirs = words_of(said[static_cast<std::size_t>(at)]);
          return network < theirs.size() ? theirs[network] : std::string();
        },
        [&] {
          if (const auto cause = formation.failure()) throw_failure(*cause);
        },
        options.deadline);
  };
  try {
    connect(mesh_, 0);
    for (std::size_t i = 0; i < more_networks_.size(); ++i) {
      connect(more_networks_[i], i + 1);
      mesh_.add(more_networks_[i].take_connections());
    }
    more_networks_.clear();
  } catch (const DistError& error) {
    throw_failure(about(members_, error.failure()));
  }
}

void MeshControl::post(Gate gate) {
  for (const Dissemination::Letter& letter : gates_[static_cast<std::size_t>(gate)].take_letters())
    mesh_.send(letter.to, frame_of(gate), letter.body);
}

bool MeshControl::come(Gate gate, const Coming& own) {
  return use(gate, [&](Dissemination& known) { return known.come(own); });
}

MeshControl::Entrance MeshControl::entrance_of(const Call& call, Waiting waiting) {
  const Signature signature = signature_of(call.op, size_);
  const auto* const counts = std::get_if<AllToAllV>(&call.op);
  return {
      .gate = Gate::calls,
      .own = {.sequence = call.sequence,
              .hash = call.signature,
              .balance = counts ? balance_of(*counts, rank_) : 0,
              .signature = signature,
              .carried = {reinterpret_cast<const char*>(call.carried.data()), call.carried.size()}},
      .deadline = call.deadline,
      .polls = waiting == Waiting::spin && policy_.spins(),
      .counts = counts};
}

// A rank that has announced a call enters it even if the group broke since: others may have gone
// in.
std::shared_ptr<const Failure> MeshControl::enter(const Entrance& entrance) {
  const auto last = use(entrance.gate, [](Dissemination& known) { return known.last(); });
  if (last != entrance.own.sequence && broken()) return failure();
  const auto start = steady_clock::now();
  if (!come(entrance.gate, entrance.own)) return failure_of_another();
  // This thread takes the news as long as it waits.
  struct Counted {
    std::atomic<int>& count;
    explicit Counted(std::atomic<int>& threads) : count(threads) { ++count; }
    ~Counted() { --count; }
  } const counted(waiting_);
  const Patience::Verdict verdict = await(entrance, start);
  if (verdict != Patience::Verdict::goes) return refuse(entrance, verdict);
  if (entrance.own.carried.empty() || await_carried(entrance, start)) return nullptr;
  if (broken()) return failure();
  return fail(late(entrance.own.signature, entrance.own.sequence, "waiting for data of all ranks"));
}

Patience::Verdict MeshControl::await(const Entrance& entrance, Deadline start) {
  Patience patience(entrance.deadline);
  while (true) {
    take_news();
    const bool is_broken = broken();
    const Patience::Verdict verdict = use(entrance.gate, [&](Dissemination& known) {
      return patience.look(
          known, steady_clock::now(), is_broken,
          {.is_dead = [&](int rank) { return is_broken && is_where_it_broke(rank); },
           .is_lost = [&](int rank) { return is_broken && flood_.is_lost(rank); },
           .is_under_way = [this] { return !mesh_.is_acknowledged(); }});
    });
    if (verdict != Patience::Verdict::waits) return verdict;
    wait_for_news(start, entrance.polls, entrance.deadline);
  }
}

// In a call that all ranks go into.
bool MeshControl::await_carried(const Entrance& entrance, Deadline start) {
  const auto has_carried = [&] {
    return use(entrance.gate, [](Dissemination& known) { return known.has_carried(); });
  };
  while (!has_carried()) {
    if (broken() || steady_clock::now() >= entrance.deadline) return false;
    wait_for_news(start, entrance.polls, entrance.deadline);
    take_news();
  }
  return true;
}

// Past the deadline, in short naps.
void MeshControl::wait_for_news(Deadline start, bool polls, Deadline deadline) {
  const auto now = steady_clock::now();
  if (polls && now < start + kPolls) return pause_between_polls(now - start);
  WaitLook::due();
  const Duration nap = waiting_ > 1 ? kShortNap : kNap;
  mesh_.wait(std::clamp<Deadline>(deadline, now + kShortNap, now + nap));
}

std::shared_ptr<const Failure> MeshControl::refuse(const Entrance& entrance,
                                                   Patience::Verdict verdict) {
  const std::uint64_t sequence = entrance.own.sequence;
  switch (verdict) {
    case Patience::Verdict::differs:
      fail_with_difference(entrance);
      return failure();
    case Patience::Verdict::unbalanced:
      return fail(misfit(entrance));
    case Patience::Verdict::left: {
      const auto peer =
          use(entrance.gate, [](Dissemination& known) { return known.left_before(); });
      return fail(ControlPlane::left(
          *peer, entrance.gate == Gate::barriers
                     ? "monitored_barrier"
                     : fmt::format("{} #{}", to_string(entrance.own.signature.kind), sequence)));
    }
    case Patience::Verdict::late: {
      const auto missing =
          use(entrance.gate, [&](Dissemination& known) { return known.missing(sequence); });
      return fail(name_not_running(passed_deadline(entrance, missing), members_, missing));
    }
    case Patience::Verdict::barred:
      return failure_of_another();
    default:
      return failure();
  }
}

Failure MeshControl::passed_deadline(const Entrance& entrance,
                                     const std::vector<int>& missing) const {
  const Coming& own = entrance.own;
  return entrance.gate == Gate::barriers
             ? did_not_reach_barrier(missing, own.sequence)
             : deadline_passed(own.signature, own.sequence,
                               "waiting for all ranks to enter the call", missing);
}

// The others say which call they make, as long as they come soon.
void MeshControl::fail_with_difference(const Entrance& entrance) {
  const Coming& own = entrance.own;
  const auto [peer, theirs] =
      use(entrance.gate, [](Dissemination& known) { return known.difference(); });
  if (theirs.sequence != own.sequence) {
    fail(mismatch(own.signature, peer, theirs.signature, peer, {}, own.sequence, theirs.sequence));
    return;
  }
  hear(entrance.gate, Patience::kAnswers,
       [this](const Dissemination& known) { return known.is_settled() || broken(); });
  const auto ranks_with = [&](std::uint64_t hash) {
    return use(entrance.gate, [&](Dissemination& known) { return known.ranks_with(hash); });
  };
  fail_with_mismatch(peer, own.sequence, own.signature, theirs.signature, ranks_with(own.hash),
                     ranks_with(theirs.hash));
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

std::shared_ptr<const Failure> MeshControl::agree(const Call& call, Waiting waiting) {
  return enter(entrance_of(call, waiting));
}

void MeshControl::announce(const Call& call) {
  if (!broken()) come(Gate::calls, entrance_of(call, Waiting::sleep).own);
}

Control::Agreement MeshControl::poll_agreement(const Call& call) {
  take_news();
  const auto verdict =
      use(Gate::calls, [&](Dissemination& known) -> std::optional<Patience::Verdict> {
        if (known.last() != call.sequence) return {};  // announce() did not come to it
        const auto found = Patience(Deadline::max()).look(known, steady_clock::now(), false, {});
        if (found != Patience::Verdict::goes || call.carried.empty() || known.has_carried())
          return found;
        return Patience::Verdict::waits;
      });
  if (verdict == Patience::Verdict::goes) return Agreement::agreed;
  if (broken()) return Agreement::failed;
  if (verdict == Patience::Verdict::waits) return Agreement::pending;
  refuse(entrance_of(call, Waiting::sleep), verdict.value_or(Patience::Verdict::barred));
  return Agreement::failed;
}

std::span<const std::byte> MeshControl::carried(int rank) {
  MutexLock lock(gates_mutex_);
  const std::string_view bytes = gates_[static_cast<std::size_t>(Gate::calls)].carried(rank);
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// Who finds this round in `barriers` may count on it that this rank has come.
std::shared_ptr<const Failure> MeshControl::barrier(Deadline deadline) {
  const std::uint64_t round = own_.barriers.load() + 1;
  if (!broken()) come(Gate::barriers, {.sequence = round});
  own_.barriers.store(round);
  return enter({.gate = Gate::barriers,
                .own = {.sequence = round},
                .deadline = deadline,
                .polls = policy_.spins()});
}

// A slot of this rank is free once its call is compared: the row has it until then.
std::shared_ptr<const Failure> MeshControl::announce_in_order(const Call& call,
                                                              const Signature& signature) {
  constexpr std::chrono::microseconds kPause{200};
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
    std::this_thread::sleep_for(kPause);
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

Failure MeshControl::late(const Signature& signature, std::uint64_t sequence,
                          std::string_view phase) {
  const std::vector<int> missing = behind(signature, sequence);
  Failure failure = deadline_passed(signature, sequence, phase, missing);
  if (!missing.empty()) return name_not_running(std::move(failure), members_, missing);
  // All have come, but one of them may have stopped since.
  failure = name_not_running(std::move(failure), members_);
  if (failure.rank >= 0) return failure;
  std::vector<int> silent = neighbours_;
  std::erase_if(silent, [this](int neighbour) { return !is_silent(neighbour); });
  if (silent.empty()) return failure;
  failure.message += fmt::format("; silent for more than {} s: {}",
                                 kSilence / std::chrono::seconds(1), names_of(silent));
  return caused_by(members_[static_cast<std::size_t>(silent.front())], std::move(failure));
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
  hear(Gate::calls, kAsking, [&](const Dissemination& known) {
    missing = known.missing(sequence);
    return missing.empty();
  });
  return missing;
}

template <class Is>
void MeshControl::hear(Gate gate, Duration patience, const Is& is_known) {
  const auto end = steady_clock::now() + patience;
  while (!use(gate, is_known) && steady_clock::now() < end) {
    mesh_.wait(steady_clock::now() + kShortNap);
    take_news();
  }
}

std::shared_ptr<ControlPlane> make_mesh_control(const ControlOptions& options) {
  return join_by<MeshControl>(
      options, [&options](GroupFormation&) { return std::make_shared<MeshControl>(options); },
      [&options](const std::shared_ptr<MeshControl>& control, GroupFormation& formation) {
        control->join(options, formation);
        watch(control);
      });
}

}}  // namespace c10d::v0
