// SPDX-License-Identifier: BSD-3-Clause
// How groups come to be: the world's members from the bootstrap, a subgroup's from its parent.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "src/core/bootstrap.h"
#include "src/core/group_state.h"
#include "src/core/members.h"

namespace c10d::inline v0 {
namespace {

std::uint64_t hash_text(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

std::shared_ptr<ProcessGroup::State> make_group(BackendContext context, std::string backend_name,
                                                Deadline deadline, Backend* parent,
                                                const std::vector<int>& parent_ranks) {
  const auto control = make_control_plane({.rank = context.rank,
                                           .size = context.size,
                                           .group = context.group,
                                           .members = context.members,
                                           .store = context.store,
                                           .token = context.token,
                                           .deadline = deadline});
  context.control = control;
  std::unique_ptr<Backend> backend;
  try {
    // Creation is an agreement: either all ranks get the group, or all the same failure.
    try {
      backend = parent != nullptr ? parent->new_group(context, parent_ranks)
                                  : make_backend(backend_name, context);
      if (!backend)
        control->fail({.code = Code::backend_error,
                       .message = fmt::format("backend '{}' gave rank {} no backend: its {} "
                                              "returned null",
                                              backend_name, context.rank,
                                              parent != nullptr ? "new_group" : "factory"),
                       .rank = context.rank});
    } catch (const DistNetworkError& error) {  // of a peer that died, perhaps
      control->explain(error.failure(), std::chrono::seconds(1));
    } catch (const DistError& error) {
      control->fail(error.failure());
    } catch (const std::exception& error) {
      control->fail(
          {.code = Code::backend_error,
           .message = fmt::format("{} on rank {}: {}", backend_name, context.rank, error.what()),
           .rank = context.rank});
    }
    const auto failure = control->broken() ? control->failure() : control->barrier(deadline);
    if (failure) throw_failure(*failure);
    control->on_broken([ended = backend.get()] { ended->abort(); });
  } catch (...) {
    control->leave();
    unwatch(*control);
    throw;
  }
  return std::make_shared<ProcessGroup::State>(std::move(context), std::move(backend_name), control,
                                               std::move(backend));
}

namespace {

// A call that ranks of a group make together to make another one. They meet in the store of the
// group.
struct Meeting {
  std::string op;
  std::string call;        // the op with its arguments, as it is told
  std::string round;       // of its own: where its ranks write
  std::vector<int> ranks;  // all of them callers

  std::string entry(int rank) const { return fmt::format("{}/{}", round, rank); }
};

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
      meeting.op == "split"
          ? ""
          : fmt::format("; each of them gives the ranks {} in this order, and the same name",
                        fmt::join(meeting.ranks, ", "));
  throw_failure(failure_at(state, meeting, Code::timed_out, missing.front(),
                           fmt::format("these ranks did not come to {}: {}{}", meeting.op,
                                       names_of(state.context.members, missing), hint)));
}

// What each of the ranks, in their order, says: this one `mine`. Throws what broke the group
// meanwhile; a mismatch, which breaks it; or at the deadline timed_out, which does not.
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
      if (now < std::min(look, deadline)) continue;
    }
    const std::vector<int> missing = ranks_missing_at(state, meeting);
    look_for_crossing_calls(state, meeting, missing);
    look = deadline;
    if (now >= deadline && !missing.empty()) throw_late(state, meeting, missing);
  }
}

std::shared_ptr<ProcessGroup::State> make_subgroup(ProcessGroup::State& state,
                                                   const std::vector<int>& members,
                                                   std::string_view name) {
  const BackendContext& parent = state.context;
  const auto me = std::find(members.begin(), members.end(), parent.rank);
  if (me == members.end())
    throw InvalidArgument(
        fmt::format("new_group: rank {} is not among the ranks given; only the "
                    "members call new_group",
                    parent.rank));
  for (const int rank : members) {
    if (rank < 0 || rank >= parent.size)
      throw InvalidArgument(fmt::format("new_group: rank {} is not in [0, {})", rank, parent.size));
    if (std::count(members.begin(), members.end(), rank) != 1)
      throw InvalidArgument(fmt::format("new_group: rank {} is given twice", rank));
  }
  const std::string key = fmt::format("{}:{}", name, list_of(members));
  int& made = state.subgroups[key];
  BackendContext context;
  context.rank = static_cast<int>(me - members.begin());
  context.size = static_cast<int>(members.size());
  // Members make the groups of the same ranks and name in the same order, so that their counts
  // agree.
  context.group =
      fmt::format("{}/{}{:08x}.{}", parent.group, name.empty() ? "" : fmt::format("{}-", name),
                  static_cast<std::uint32_t>(hash_text(key)), made);
  for (const int rank : members) {
    context.members.push_back(parent.members[static_cast<std::size_t>(rank)]);
    context.members.back().rank = static_cast<int>(context.members.size()) - 1;
  }
  context.store = make_prefix_store(context.group, parent.store);
  context.token = parent.token;
  context.timeout = Duration(state.timeout.load());
  const Deadline deadline = std::chrono::steady_clock::now() + context.timeout;
  // Until all are there the parent tells of a member that died; from then on the group does.
  exchange(state,
           {.op = "new_group",
            .call = fmt::format("new_group({{{}}}{})", fmt::join(members, ", "),
                                name.empty() ? "" : fmt::format(", \"{}\"", name)),
            .round = context.group + "/came",
            .ranks = members},
           "", deadline);
  ++made;
  return make_group(std::move(context), state.backend_name, deadline, state.backend.get(), members);
}

}  // namespace

ProcessGroup ProcessGroup::new_group(std::span<const int> ranks, std::string_view name) {
  State& state = existing(state_);
  state.check_alive();
  Exclusive exclusive(state);
  if (const auto failure = state.control->failure()) throw_failure(*failure);
  return ProcessGroup(make_subgroup(state, {ranks.begin(), ranks.end()}, name));
}

ProcessGroup ProcessGroup::split(std::optional<int> color, int key) {
  State& state = existing(state_);
  state.check_alive();
  Exclusive exclusive(state);
  if (const auto failure = state.control->failure()) throw_failure(*failure);
  const std::string mine = color ? fmt::format("{} {}", *color, key) : "none";
  Meeting meeting{.op = "split",
                  .call = color ? fmt::format("split({}, {})", *color, key) : "split({})",
                  .round = fmt::format("split/{}", state.splits++),
                  .ranks = std::vector<int>(static_cast<std::size_t>(state.context.size))};
  std::iota(meeting.ranks.begin(), meeting.ranks.end(), 0);
  std::vector<std::string> entries;
  try {
    const Deadline deadline = std::chrono::steady_clock::now() + Duration(state.timeout.load());
    entries = exchange(state, meeting, mine, deadline);
  } catch (const DistTimeoutError& error) {
    throw_failure(*state.control->fail(error.failure()));
  }
  if (!color) return {};
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < state.context.size; ++rank) {
    int their_color = 0, their_key = 0;
    if (std::sscanf(entries[static_cast<std::size_t>(rank)].c_str(), "%d %d", &their_color,
                    &their_key) == 2 &&
        their_color == *color)
      members.emplace_back(their_key, rank);
  }
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [their_key, rank] : members) ranks.push_back(rank);
  return ProcessGroup(
      make_subgroup(state, ranks, fmt::format("split{}.{}", state.splits - 1, *color)));
}

}  // namespace c10d::inline v0
