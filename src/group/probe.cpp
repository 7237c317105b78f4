// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <thread>

#include "c10d/process_group.h"
#include "src/base/timeouts.h"
#include "src/group/check_arguments.h"
#include "src/group/group_state.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 {

std::optional<Received> ProcessGroup::iprobe(int peer, std::uint32_t tag) const {
  detail::GroupState& state = require_state(state_);
  state.check_alive();
  Exclusive exclusive(state);
  check_source("probe", peer, state.context.size);
  return state.probe(peer, tag);
}

Received ProcessGroup::probe(int peer, std::uint32_t tag, CallOptions options) const {
  constexpr int kSpins = 2'000;
  constexpr std::chrono::microseconds kPause{50};
  constexpr std::chrono::seconds kOnTheWay{1};  // as long as a message may take to arrive
  detail::GroupState& state = require_state(state_);
  state.check_alive();
  Exclusive exclusive(state);
  check_source("probe", peer, state.context.size);
  const Duration limit = clamp_timeout(options.timeout.value_or(Duration(state.timeout.load())));
  if (limit <= Duration::zero()) throw InvalidArgument("CallOptions::timeout must be positive");
  const Deadline deadline = std::chrono::steady_clock::now() + limit;
  std::optional<Deadline> end_of_messages;  // of a peer that has left
  for (int turn = 0;; ++turn) {
    if (const auto found = state.probe(peer, tag)) return *found;
    const auto now = std::chrono::steady_clock::now();
    if (peer != kAnySource && !end_of_messages && state.control->has_left(peer))
      end_of_messages = now + kOnTheWay;
    if (end_of_messages && now >= *end_of_messages)
      state.control->fail(state.control->left(peer, "probe"));  // the next turn throws it
    if (now >= deadline)
      throw_failure({.code = Code::timed_out,
                     .message = fmt::format(
                         "probe: no message with tag {} came from {} in {:.3f} s; the "
                         "group stays intact",
                         tag, peer == kAnySource ? "any rank" : fmt::format("rank {}", peer),
                         std::chrono::duration<double>(limit).count()),
                     .rank = state.context.rank,
                     .group = state.context.group,
                     .op = "probe"});
    WaitLook::due();
    if (turn < kSpins)
      sched_yield();
    else
      std::this_thread::sleep_for(kPause);
  }
}

}}  // namespace c10d::v0
