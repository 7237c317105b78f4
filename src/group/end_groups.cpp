// SPDX-License-Identifier: BSD-3-Clause
#include "src/group/end_groups.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "c10d/spi/backend.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/group/backend_names.h"
#include "src/sync/process_singleton.h"

namespace c10d { inline namespace v0 {
namespace {

using detail::GroupState;

struct Groups {
  Mutex mutex;
  std::vector<std::weak_ptr<GroupState>> made C10D_GUARDED_BY(mutex);  // in that order
};

// Until the process ends, and where leak checkers find it. Takes no lock: a fork may have left one
// held.
void keep_forever(std::shared_ptr<GroupState> state) {
  struct Kept {
    std::shared_ptr<GroupState> state;
    Kept* next;
  };
  static std::atomic<Kept*> first{nullptr};
  auto* const kept = new Kept{std::move(state), first.load()};
  while (!first.compare_exchange_weak(kept->next, kept)) {
  }
}

bool uses(std::string_view names, std::string_view backend) noexcept {
  const auto found = backend_names_of(names);
  return found && (found->cpu == backend || found->cuda == backend);
}

// Whether nothing points to the group any more.
bool shut_down(GroupState& state) noexcept try {
  if (state.process != process_generation()) return false;
  // Ops on a GPU have returned, and wait for peers: each until its deadline.
  const bool waits = state.control->ops_on_gpu() != 0;
  return state.shutdown(waits ? Duration(state.timeout.load()) : std::chrono::seconds(1));
} catch (const std::exception& error) {
  log(LogLevel::error, "group \"{}\" could not be shut down: {}", state.context.group,
      error.what());
  return false;
}

}  // namespace

void remember_group(const std::shared_ptr<GroupState>& state) {
  auto& groups = of_this_process<Groups>();
  MutexLock lock(groups.mutex);
  std::erase_if(groups.made, [](const auto& group) { return group.expired(); });
  groups.made.push_back(state);
}

void end_group(std::shared_ptr<GroupState> state) noexcept {
  // In a forked child the memory is not there; and ops that ignored an abort still point to the
  // state.
  if (!shut_down(*state)) keep_forever(std::move(state));
}

void end_groups(std::string_view backend) noexcept {
  std::vector<std::weak_ptr<GroupState>> groups;
  {
    auto& all = of_this_process<Groups>();
    MutexLock lock(all.mutex);
    groups = all.made;
  }
  for (const auto& group : groups)
    if (const auto state = group.lock(); state && uses(state->backend_name, backend))
      shut_down(*state);
}

}}  // namespace c10d::v0
