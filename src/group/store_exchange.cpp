// SPDX-License-Identifier: BSD-3-Clause
#include "src/group/store_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/failure_text.h"
#include "src/base/members.h"
#include "src/base/timeouts.h"
#include "src/control/forming.h"
#include "src/group/bootstrap.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::string_view kMet = "met";  // the outcome; else the next attempt and a failure

// The attempt that is open after this outcome, if any is.
std::string attempt_after(const std::optional<std::string>& outcome) {
  return outcome ? outcome->substr(0, outcome->find('\n')) : "0";
}

// Where a rank writes which call it has reached last.
std::string place_of(int rank) { return fmt::format("reached/{}", rank); }

std::string list_of(const std::vector<int>& ranks) {
  return fmt::format(" {} ", fmt::join(ranks, " "));
}

std::string to_place(const GroupCall& group_call) {
  return fmt::format("{}\n{}\n{}", group_call.round(), list_of(group_call.ranks), group_call.call);
}

// A rank and the call in which it waits.
struct Waiting {
  int rank;
  std::string call;
};
using Chain = std::vector<Waiting>;

// What ranks that do not arrive wait for themselves, as far as their places say.
class ChainSearch {
 public:
  ChainSearch(const detail::GroupState& state, Deadline deadline)
      : state_(state), deadline_(deadline) {}

  // From `peer`, which has not come to a call of ours, to a rank that waits for this one,
  // each waits for the next: then none of them comes. Empty when there is no such chain.
  Chain from(int peer) {
    if (std::ranges::find(seen_, peer) != seen_.end()) return {};
    seen_.push_back(peer);
    const std::optional<std::string> place = look_up(place_of(peer));
    if (!place) return {};
    const std::size_t list = place->find('\n');
    const std::size_t call = list == place->npos ? list : place->find('\n', list + 1);
    if (call == place->npos) return {};
    const std::string round = place->substr(0, list);
    const std::string ranks = place->substr(list, call - list);
    const Waiting first{peer, place->substr(call + 1)};
    const int me = state_.context.rank;
    if (ranks.find(list_of({me})) != ranks.npos && is_missed(me, round)) return {first};
    std::istringstream others(ranks);
    for (int other = 0; others >> other;) {
      if (other == me || other == peer || !is_to_follow(other, round)) continue;
      Chain chain = from(other);
      // Once more: now it is known that it will not come.
      if (chain.empty() || !is_missed(other, round)) continue;
      chain.insert(chain.begin(), first);
      return chain;
    }
    return {};
  }

 private:
  std::optional<std::string> look_up(const std::string& key) const {
    return state_.context.store->try_get(key, patience_until(deadline_));
  }
  bool has_come(int rank, const std::string& round) const {
    return look_up(fmt::format("{}/{}", round, rank)).has_value();
  }
  bool is_open(const std::string& round) const {
    const std::size_t slash = round.rfind('/');
    return slash != round.npos &&
           attempt_after(look_up(round.substr(0, slash))) == round.substr(slash + 1);
  }
  bool is_missed(int rank, const std::string& round) const {
    return !has_come(rank, round) && is_open(round);
  }
  // Of many ranks some are enough.
  bool is_to_follow(int rank, const std::string& round) {
    return followed_ < kMostFollowed && ++followed_ && !has_come(rank, round);
  }

  static constexpr int kMostFollowed = 256;
  const detail::GroupState& state_;
  const Deadline deadline_;
  std::vector<int> seen_;
  int followed_ = 0;
};

Failure failure_at(const detail::GroupState& state, const GroupCall& group_call, Code code,
                   int rank, std::string message) {
  const Member& member = state.context.members[static_cast<std::size_t>(rank)];
  return {.code = code,
          .message = std::move(message),
          .rank = rank,
          .host = member.host,
          .pid = member.pid,
          .group = state.context.group,
          .op = group_call.op()};
}

bool has_come(const detail::GroupState& state, const GroupCall& group_call, int rank) {
  return state.context.store->try_get(group_call.entry(rank), patience_until(group_call.deadline))
      .has_value();
}

std::vector<int> ranks_missing_at(const detail::GroupState& state, const GroupCall& group_call) {
  std::vector<int> missing;
  for (const int rank : group_call.ranks)
    if (!has_come(state, group_call, rank)) missing.push_back(rank);
  return missing;
}

// A rank that left comes no more. What it wrote, it wrote before that: ask first, then look.
void look_for_ranks_that_left(detail::GroupState& state, const GroupCall& group_call) {
  for (const int rank : state.control->ranks_that_left()) {
    if (std::ranges::find(group_call.ranks, rank) == group_call.ranks.end() ||
        has_come(state, group_call, rank))
      continue;
    Failure failure = state.control->left(rank, group_call.op());
    failure.op = group_call.op();
    throw_failure(*state.control->fail(std::move(failure)));
  }
}

// If ranks wait for each other in different calls, one of them arrived last. That one finds it out,
// because every rank looks once it has arrived itself.
void look_for_crossing_calls(detail::GroupState& state, const GroupCall& group_call,
                             const std::vector<int>& missing) {
  ChainSearch search(state, group_call.deadline);
  for (const int peer : missing) {
    Chain chain = search.from(peer);
    if (chain.empty()) continue;
    chain.push_back({state.context.rank, group_call.call});
    std::string text;
    for (const Waiting& waiting : chain)
      text +=
          fmt::format("{}rank {} called {}", text.empty() ? "" : ", ", waiting.rank, waiting.call);
    text += chain.size() == 2
                ? ": each waits for the other; the members of a new group all give the same ranks "
                  "in the same order, and the same name"
                : ": each waits for the next, the last for the first; ranks that are in several "
                  "new groups all make them in the same order";
    throw_failure(
        *state.control->fail(failure_at(state, group_call, Code::mismatch, peer, std::move(text))));
  }
}

Failure late(const detail::GroupState& state, const GroupCall& group_call,
             const std::vector<int>& missing) {
  const std::string hint =
      group_call.kind != GroupCallKind::new_group
          ? ""
          : fmt::format("; each of them gives the ranks {} in this order, and the same name",
                        fmt::join(group_call.ranks, ", "));
  const std::string last_op = state.control->last_op_of(missing.front());
  return name_not_running(
      failure_at(
          state, group_call, Code::timed_out, missing.front(),
          fmt::format("these ranks did not make this call of {}: {}{}{}", group_call.op(),
                      names_of(state.context.members, missing),
                      last_op.empty() ? "" : fmt::format("; rank {}: {}", missing.front(), last_op),
                      hint)),
      state.context.members, missing);
}

// Of an attempt that this rank or another one has given up.
[[noreturn]] void throw_given_up(detail::GroupState& state, const GroupCall& group_call,
                                 const std::string& outcome) {
  // As if it had never come: it may try again, or make another call.
  const int me = state.context.rank;
  for (const std::string& key : {group_call.entry(me), place_of(me)})
    state.context.store->delete_key(key, patience_until(group_call.deadline));
  Failure failure = from_text(outcome.substr(outcome.find('\n') + 1));
  failure.group = state.context.group;
  throw_failure(std::move(failure));
}

// Shows the others in which call this rank is.
class Running {
 public:
  Running(RankBlock& block, GroupCallKind kind) : shown_(block.group_call) {
    shown_.store(kind, std::memory_order_release);
  }
  ~Running() { shown_.store(GroupCallKind::none, std::memory_order_release); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::atomic<GroupCallKind>& shown_;
};

// For meet().
class GroupCallMember {
 public:
  GroupCallMember(detail::GroupState& state, GroupCall group_call, const std::string& mine)
      : state_(state),
        store_(*state.context.store),
        before_(store_.try_get(group_call.key, patience_until(group_call.deadline))),
        group_call_(std::move(group_call)),
        mine_(mine) {
    group_call_.attempt = attempt_after(before_);
    for (const int rank : group_call_.ranks) keys_.push_back(group_call_.entry(rank));
  }

  void come() {
    const int me = state_.context.rank;
    store_.multi_set(std::array{group_call_.entry(me), place_of(me)},
                     std::array{mine_, to_place(group_call_)}, patience());
    look_ = std::chrono::steady_clock::now() + pause_between_looks(state_.context.size);
  }
  std::shared_ptr<const Failure> parent_failure() const { return state_.control->failure(); }
  bool await_members() {
    constexpr std::chrono::milliseconds kSlice{100};  // how often to look for a broken group
    now_ = std::chrono::steady_clock::now();
    try {
      entries_ = store_.multi_get(
          keys_, std::clamp<Duration>(group_call_.deadline - now_, Duration(1), kSlice));
      return true;
    } catch (const DistTimeoutError&) {
      return false;
    }
  }
  bool close() {
    outcome_ = store_.compare_set(group_call_.key, before_, kMet, patience());
    return outcome_ == kMet;
  }
  // Throws it. What broke the parent may have taken the store with it, and then it is the cause.
  std::shared_ptr<const Failure> given_up() {
    const auto parent = parent_failure();
    try {
      outcome_ = store_.try_get(group_call_.key, parent ? Duration(kStorePatience) : patience());
    } catch (const DistError&) {
      if (parent) return parent;
      throw;
    }
    if (outcome_ != before_ && outcome_ != kMet)
      throw_given_up(state_, group_call_, outcome_.value_or(""));
    return nullptr;
  }
  void give_up_if_late() {
    look_for_ranks_that_left(state_, group_call_);
    if (now_ < std::min(look_, group_call_.deadline)) return;
    const std::vector<int> missing = ranks_missing_at(state_, group_call_);
    look_for_crossing_calls(state_, group_call_, missing);
    look_ = group_call_.deadline;
    if (now_ >= group_call_.deadline && !missing.empty())
      store_.compare_set(group_call_.key, before_,
                         fmt::format("{}\n{}", std::stoi(group_call_.attempt) + 1,
                                     to_text(late(state_, group_call_, missing))),
                         patience());
  }

  std::vector<std::string> entries() { return std::move(entries_); }

 private:
  Duration patience() const { return patience_until(group_call_.deadline); }

  detail::GroupState& state_;
  Store& store_;
  const std::optional<std::string> before_;  // how the attempt before this one came out
  GroupCall group_call_;
  const std::string& mine_;
  std::vector<std::string> keys_, entries_;
  std::optional<std::string> outcome_;
  Deadline now_{}, look_{};
};

}  // namespace

std::vector<std::string> exchange(detail::GroupState& state, GroupCall group_call,
                                  const std::string& mine) {
  const Running running(state.control->own_block(), group_call.kind);
  GroupCallMember member(state, std::move(group_call), mine);
  if (const auto failure = meet(member)) throw_failure(*failure);
  return member.entries();
}

std::vector<std::string> exchange_with_all(detail::GroupState& state, GroupCallKind kind,
                                           std::string call, std::string key,
                                           const std::string& mine, Deadline deadline) {
  GroupCall group_call{.kind = kind,
                       .call = std::move(call),
                       .key = std::move(key),
                       .ranks = std::vector<int>(static_cast<std::size_t>(state.context.size)),
                       .deadline = deadline};
  std::iota(group_call.ranks.begin(), group_call.ranks.end(), 0);
  try {
    return exchange(state, group_call, mine);
  } catch (const DistTimeoutError& error) {
    throw_failure(*state.control->fail(error.failure()));
  }
}

}}  // namespace c10d::v0
