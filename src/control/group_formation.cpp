// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/group_formation.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "src/base/failure_text.h"
#include "src/base/log.h"
#include "src/base/members.h"
#include "src/base/timeouts.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr const char* kCause = "join/failed";
constexpr std::chrono::seconds kPatience{1};  // for the end of a process whose connection ended

}  // namespace

GroupFormation::Cause GroupFormation::dead_member() {
  for (const Member& member : options_.members) {
    if (!has_ended(member)) continue;
    return std::make_shared<const Failure>(
        Failure{.code = Code::peer_died,
                .message = fmt::format("{} died while group \"{}\" was being formed",
                                       name_of(member), options_.group),
                .rank = member.rank,
                .host = member.host,
                .pid = member.pid,
                .group = options_.group});
  }
  return nullptr;
}

GroupFormation::Cause GroupFormation::told() {
  if (cause_) return cause_;
  try {
    if (const auto text = options_.store->try_get(kCause, kStorePatience)) {
      Failure cause = from_text(*text);
      cause.group = options_.group;
      cause_ = std::make_shared<const Failure>(std::move(cause));
    }
  } catch (const DistTimeoutError&) {  // no news: every thread that waits has a deadline
  }
  return cause_;
}

// In the words of this group: of its ranks, or none.
GroupFormation::Cause GroupFormation::parent_failure() {
  if (options_.parent == nullptr) return nullptr;
  const Cause theirs = options_.parent->failure();
  if (!theirs) return nullptr;
  Failure failure = *theirs;
  failure.message = fmt::format("group \"{}\" broke while group \"{}\" was being formed: {}",
                                theirs->group, options_.group, theirs->message);
  const auto member = std::ranges::find(options_.parent_ranks, theirs->rank);
  failure.rank = member == options_.parent_ranks.end()
                     ? -1
                     : static_cast<int>(member - options_.parent_ranks.begin());
  failure.group = options_.group;
  return std::make_shared<const Failure>(std::move(failure));
}

GroupFormation::Cause GroupFormation::failure() {
  if (WaitLook::due()) return std::make_shared<const Failure>(WaitLook::failure());
  return why_in_vain(*this);
}

GroupFormation::Cause GroupFormation::fail(Failure failure) {
  if (cause_) return cause_;
  if (failure.code == Code::link_lost || failure.code == Code::store_lost) {
    const Deadline end = steady_clock::now() + kPatience;
    Cause seen;
    for (; !seen && steady_clock::now() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      if (!(seen = parent_failure())) seen = dead_member();
    if (seen) failure = *seen;
  }
  failure.group = options_.group;
  try {
    const std::string mine = to_text(failure);
    const auto winner = options_.store->compare_set(kCause, std::nullopt, mine, kStorePatience);
    if (winner && *winner != mine) failure = from_text(*winner);
    failure.group = options_.group;
  } catch (const std::exception& error) {
    log(LogLevel::warn, "group \"{}\": peers could not be notified of a failure: {}",
        options_.group, error.what());
  }
  cause_ = std::make_shared<const Failure>(std::move(failure));
  return cause_;
}

void GroupFormation::await(const std::vector<std::string>& keys) {
  while (true) {
    if (const auto cause = failure()) throw_failure(*cause);
    const Duration left = options_.deadline - steady_clock::now();
    try {
      return options_.store->wait(keys, std::clamp<Duration>(left, Duration(1), kJoinLook));
    } catch (const DistTimeoutError&) {
      if (left > Duration::zero()) continue;
    }
    std::vector<int> missing;
    for (int rank = 0; rank < options_.size; ++rank)
      if (!options_.store->try_get(keys[static_cast<std::size_t>(rank)], kStorePatience))
        missing.push_back(rank);
    if (!missing.empty()) throw_failure(late(missing));
  }
}

Failure GroupFormation::late(const std::vector<int>& missing) const {
  const Member* const first =
      missing.empty() ? nullptr : &options_.members[static_cast<std::size_t>(missing.front())];
  return {.code = Code::timed_out,
          .message = fmt::format("group \"{}\" did not form because these ranks did not arrive: {}",
                                 options_.group, names_of(options_.members, missing)),
          .rank = first ? first->rank : -1,
          .host = first ? first->host : "",
          .pid = first ? first->pid : 0,
          .group = options_.group};
}

}}  // namespace c10d::v0
