// SPDX-License-Identifier: BSD-3-Clause
#include "src/core/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "src/core/bootstrap.h"
#include "src/core/members.h"

namespace c10d::inline v0 {
namespace {

// Where a rank says which meeting it has come to last.
std::string place_of(int rank) { return fmt::format("meets/{}", rank); }

std::string list_of(const std::vector<int>& ranks) {
  return fmt::format(" {} ", fmt::join(ranks, " "));
}

std::string to_place(const Meeting& meeting) {
  return fmt::format("{}\n{}\n{}", meeting.round, list_of(meeting.ranks), meeting.call);
}

// The call in which `peer`, which has not come to a meeting of ours, waits for this rank, if any.
// Then neither comes to the other.
std::optional<std::string> crossing_call(ProcessGroup::State& state, int peer) {
  const std::optional<std::string> place = state.context.store->try_get(place_of(peer));
  if (!place) return std::nullopt;
  const std::size_t ranks = place->find('\n');
  const std::size_t call = ranks == place->npos ? ranks : place->find('\n', ranks + 1);
  if (call == place->npos) return std::nullopt;
  const int me = state.context.rank;
  const bool wants_me = place->substr(ranks, call - ranks).find(list_of({me})) != place->npos;
  // A meeting that this rank came to may have ended long ago.
  const std::string mine = fmt::format("{}/{}", place->substr(0, ranks), me);
  if (!wants_me || state.context.store->try_get(mine)) return std::nullopt;
  return place->substr(call + 1);
}

Failure failure_at(const ProcessGroup::State& state, const Meeting& meeting, Code code, int rank,
                   std::string message) {
  const Member& member = state.context.members[static_cast<std::size_t>(rank)];
  return {.code = code,
          .message = std::move(message),
          .rank = rank,
          .host = member.host,
          .pid = member.pid,
          .group = state.context.group,
          .op = meeting.op};
}

std::vector<int> ranks_missing_at(const ProcessGroup::State& state, const Meeting& meeting) {
  std::vector<int> missing;
  for (const int rank : meeting.ranks)
    if (!state.context.store->try_get(meeting.entry(rank))) missing.push_back(rank);
  return missing;
}

// A rank that left comes no more. What it wrote, it wrote before that: ask first, then look.
void look_for_ranks_that_left(ProcessGroup::State& state, const Meeting& meeting) {
  for (const int rank : state.control->ranks_that_left()) {
    if (std::ranges::find(meeting.ranks, rank) == meeting.ranks.end() ||
        state.context.store->try_get(meeting.entry(rank)))
      continue;
    Failure failure = state.control->left(rank, meeting.op);
    failure.op = meeting.op;
    throw_failure(*state.control->fail(std::move(failure)));
  }
}

// Of two ranks that each wait for the other in another call, one has come later: that one finds it
// out, if every rank looks once it has come itself.
void look_for_crossing_calls(ProcessGroup::State& state, const Meeting& meeting,
                             const std::vector<int>& missing) {
  for (const int peer : missing) {
    const std::optional<std::string> theirs = crossing_call(state, peer);
    if (!theirs) continue;
    throw_failure(*state.control->fail(failure_at(
        state, meeting, Code::mismatch, peer,
        fmt::format("rank {} called {}, rank {} called {}: each waits for the other; the members "
                    "of a new group all give the same ranks in the same order, and the same name",
                    peer, *theirs, state.context.rank, meeting.call))));
  }
}

[[noreturn]] void throw_late(ProcessGroup::State& state, const Meeting& meeting,
                             const std::vector<int>& missing) {
  // As if it had never come: it may try again, or make another call.
  state.context.store->delete_key(meeting.entry(state.context.rank));
  state.context.store->delete_key(place_of(state.context.rank));
  const std::string hint =
      meeting.op != "new_group"
          ? ""
          : fmt::format("; each of them gives the ranks {} in this order, and the same name",
                        fmt::join(meeting.ranks, ", "));
  throw_failure(failure_at(state, meeting, Code::timed_out, missing.front(),
                           fmt::format("these ranks did not come to {}: {}{}", meeting.op,
                                       names_of(state.context.members, missing), hint)));
}

}  // namespace

std::vector<std::string> exchange(ProcessGroup::State& state, const Meeting& meeting,
                                  const std::string& mine, Deadline deadline) {
  constexpr std::chrono::milliseconds kSlice{100};  // how often to look for a broken group
  Store& store = *state.context.store;
  std::vector<std::string> keys;
  for (const int rank : meeting.ranks) keys.push_back(meeting.entry(rank));
  const int me = state.context.rank;
  store.multi_set(std::array{meeting.entry(me), place_of(me)}, std::array{mine, to_place(meeting)});
  Deadline look = std::chrono::steady_clock::now() + pause_between_looks(state.context.size);
  while (true) {
    if (const auto failure = state.control->failure()) throw_failure(*failure);
    const Deadline now = std::chrono::steady_clock::now();
    try {
      return store.multi_get(keys, std::clamp<Duration>(deadline - now, Duration(1), kSlice));
    } catch (const DistTimeoutError&) {
    }
    look_for_ranks_that_left(state, meeting);
    if (now < std::min(look, deadline)) continue;
    const std::vector<int> missing = ranks_missing_at(state, meeting);
    look_for_crossing_calls(state, meeting, missing);
    look = deadline;
    if (now >= deadline && !missing.empty()) throw_late(state, meeting, missing);
  }
}

std::vector<std::string> exchange_with_all(ProcessGroup::State& state, std::string op,
                                           std::string call, std::string round,
                                           const std::string& mine, Deadline deadline) {
  Meeting meeting{.op = std::move(op),
                  .call = std::move(call),
                  .round = std::move(round),
                  .ranks = std::vector<int>(static_cast<std::size_t>(state.context.size))};
  std::iota(meeting.ranks.begin(), meeting.ranks.end(), 0);
  try {
    return exchange(state, meeting, mine, deadline);
  } catch (const DistTimeoutError& error) {
    throw_failure(*state.control->fail(error.failure()));
  }
}

}  // namespace c10d::inline v0
