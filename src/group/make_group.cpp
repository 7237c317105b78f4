// SPDX-License-Identifier: BSD-3-Clause
// How groups come to be: the world's members from the bootstrap, a subgroup's from its parent.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "src/base/hash.h"
#include "src/base/members.h"
#include "src/control/make_control_plane.h"
#include "src/group/backend_names.h"
#include "src/group/end_groups.h"
#include "src/group/group_state.h"
#include "src/group/store_exchange.h"

namespace c10d { inline namespace v0 {

using std::chrono::steady_clock;

namespace {

Failure why_no_backend(Failure failure, const BackendContext& context) {
  failure = name_not_running(std::move(failure), context.members);
  if (failure.code != Code::unsupported || failure.rank >= 0) return failure;
  // This rank lacks what the backend needs; others may, too.
  const Member& own = context.members[static_cast<std::size_t>(context.rank)];
  return caused_by(own, std::move(failure));
}

}  // namespace

std::shared_ptr<detail::GroupState> make_group(BackendContext context, std::string backend_name,
                                               Duration patience, detail::GroupState* parent,
                                               const std::vector<int>& parent_ranks) {
  const auto control = make_control_plane({.rank = context.rank,
                                           .size = context.size,
                                           .group = context.group,
                                           .members = context.members,
                                           .store = context.store,
                                           .token = context.token,
                                           .deadline = steady_clock::now() + patience,
                                           .parent = parent ? parent->control.get() : nullptr,
                                           .parent_ranks = parent_ranks,
                                           .outlives_networks = outlives_networks(backend_name)});
  context.control = control;
  const Duration backend_timeout = context.timeout;
  std::unique_ptr<Backend> backend;
  try {
    // Creation is an agreement: either all ranks get the group, or all the same failure.
    try {
      backend = parent != nullptr ? parent->backend->new_group(context, parent_ranks)
                                  : make_backend(backend_name, context);
      if (!backend)
        control->fail({.code = Code::backend_error,
                       .message = fmt::format("backend '{}' gave rank {} no backend: its {} "
                                              "returned null",
                                              backend_name, context.rank,
                                              parent != nullptr ? "new_group" : "factory"),
                       .rank = context.rank});
    } catch (const DistNetworkError& error) {  // of a peer that died, perhaps
      control->resolve_cause(error.failure(), std::chrono::seconds(1));
    } catch (const DistError& error) {
      control->fail(why_no_backend(error.failure(), context));
    } catch (const std::exception& error) {
      control->fail(
          {.code = Code::backend_error,
           .message = fmt::format("{} on rank {}: {}", backend_name, context.rank, error.what()),
           .rank = context.rank});
    }
    if (backend) control->on_tick([looks = backend.get()] { looks->look_after(); });
    // Later than the end of any wait in a backend that began before: that wait then reports which
    // rank is missing.
    const Deadline end = steady_clock::now() + std::max(patience, backend_timeout);
    const auto failure = control->broken() ? control->failure() : control->barrier(end);
    if (failure) throw_failure(*failure);
    control->on_broken([ended = backend.get()] { ended->abort(); });
  } catch (...) {
    control->leave();
    unwatch(*control);
    throw;
  }
  auto state = std::make_shared<detail::GroupState>(std::move(context), std::move(backend_name),
                                                    control, std::move(backend));
  remember_group(state);
  return state;
}

namespace {

// What broke the parent and so a group of it that came together is the failure of that call as of
// every other, with the rank that it names there. It is known here soon: a rank that died breaks
// the parent as well, and over several hosts one rank knows before another.
Failure in_words_of_parent(const detail::GroupState& parent, const Failure& failure) {
  constexpr std::chrono::seconds kSoon{1};
  const bool waits = failure.code == Code::peer_died ||
                     (failure.code != Code::timed_out && !parent.context.all_local());
  const Deadline end = steady_clock::now() + kSoon;
  while (waits && !parent.control->broken() && steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto theirs = parent.control->failure();
  const bool same = theirs && theirs->code == failure.code &&
                    (failure.message.ends_with(theirs->message) ||
                     (failure.pid != 0 && failure.pid == theirs->pid));
  return same ? *theirs : failure;
}

std::shared_ptr<detail::GroupState> make_subgroup(detail::GroupState& state,
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
  const std::string key = fmt::format("{}:{}", name, fmt::join(members, " "));
  int& made = state.subgroups[key];
  BackendContext context;
  context.rank = static_cast<int>(me - members.begin());
  context.size = static_cast<int>(members.size());
  // Members make the groups of the same ranks and name in the same order, so that their counts
  // agree.
  context.group =
      fmt::format("{}/{}{:08x}.{}", parent.group, name.empty() ? "" : fmt::format("{}-", name),
                  static_cast<std::uint32_t>(fnv1a(key)), made);
  for (const int rank : members) {
    context.members.push_back(parent.members[static_cast<std::size_t>(rank)]);
    context.members.back().rank = static_cast<int>(context.members.size()) - 1;
  }
  context.store = make_prefix_store(context.group, parent.store);
  context.token = parent.token;
  context.timeout = Duration(state.timeout.load());
  context.device = state.gpu;
  exchange(state,
           {.kind = GroupCallKind::new_group,
            .call = fmt::format("new_group({{{}}}{})", fmt::join(members, ", "),
                                name.empty() ? "" : fmt::format(", \"{}\"", name)),
            .key = context.group + "/came",
            .ranks = members,
            .deadline = steady_clock::now() + context.timeout},
           "");
  ++made;
  const Duration patience = context.timeout;
  try {
    auto group = make_group(std::move(context), state.backend_name, patience, &state, members);
    group->abort_on(state.stop_token());
    return group;
  } catch (const DistError& error) {
    throw_failure(in_words_of_parent(state, error.failure()));
  }
}

// In the order of their keys, then of their numbers. Entries are by rank: color and key.
std::vector<int> ranks_of_color(const std::vector<std::string>& entries, int color) {
  std::vector<std::pair<int, int>> members;  // key, rank
  for (std::size_t rank = 0; rank < entries.size(); ++rank) {
    int their_color = 0, their_key = 0;
    if (std::sscanf(entries[rank].c_str(), "%d %d", &their_color, &their_key) == 2 &&
        their_color == color)
      members.emplace_back(their_key, static_cast<int>(rank));
  }
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [their_key, rank] : members) ranks.push_back(rank);
  return ranks;
}

}  // namespace

ProcessGroup ProcessGroup::new_group(std::span<const int> ranks, std::string_view name) const {
  detail::GroupState& state = require_state(state_);
  state.check_alive();
  Exclusive exclusive(state);
  return state.with_record_dump([&] {
    if (const auto failure = state.control->failure()) throw_failure(*failure);
    return ProcessGroup(make_subgroup(state, {ranks.begin(), ranks.end()}, name));
  });
}

ProcessGroup ProcessGroup::split(std::optional<int> color, int key) const {
  detail::GroupState& state = require_state(state_);
  state.check_alive();
  Exclusive exclusive(state);
  return state.with_record_dump([&]() -> ProcessGroup {
    if (const auto failure = state.control->failure()) throw_failure(*failure);
    const std::string mine = color ? fmt::format("{} {}", *color, key) : "none";
    const std::string call = color ? fmt::format("split({}, {})", *color, key) : "split({})";
    const std::vector<std::string> entries = exchange_with_all(
        state, GroupCallKind::split, call, fmt::format("split/{}", state.splits++), mine,
        std::chrono::steady_clock::now() + Duration(state.timeout.load()));
    if (!color) return {};
    return ProcessGroup(make_subgroup(state, ranks_of_color(entries, *color),
                                      fmt::format("split{}.{}", state.splits - 1, *color)));
  });
}

ProcessGroup ProcessGroup::split_by_host() const {
  const auto& all = members();
  const auto here = [](const Member& member) { return member.same_host; };
  return split(std::find_if(all.begin(), all.end(), here)->rank);
}

}}  // namespace c10d::v0
