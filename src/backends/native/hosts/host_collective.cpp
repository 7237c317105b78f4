// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/host_collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>

#include "src/backends/common/failures.h"
#include "src/backends/native/hosts/enter.h"
#include "src/backends/native/hosts/small.h"
#include "src/base/members.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLeastLossPatience{300};  // past the deadline of the op
constexpr std::chrono::microseconds kShortestNap{20}, kLongestNap{500};

// Of the exception that is being handled.
std::shared_ptr<const Failure> failure_of_exception(HostGroup& group, const Call& call) noexcept {
  const auto fail = [&](Code code, std::string why) {
    return group.control().fail(
        failure_in(group.context(), call, code, std::move(why), group.context().rank));
  };
  try {
    throw;
  } catch (const DistError& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_resources, "no memory for what the op needs beside its buffers");
  } catch (const std::exception& error) {
    return fail(Code::backend_error, error.what());
  }
}

}  // namespace

bool HostCollective::enter() {
  if (entered_) return true;
  entered_ = true;
  group_.links().push();
  failure_ = use_.without([this] { return native::enter(group_.control(), call_); });
  return !failure_;
}

bool HostCollective::overlap(std::size_t bytes, const Step& between, const Step& inside) {
  if (!enter()) return false;
  return is_alone() || !overlaps_bytes(bytes) ? between() && inside() : take_turns(between, inside);
}

bool HostCollective::take_turns(const Step& between, const Step& inside) {
  bool between_ok = false, inside_ok = false;
  const auto body = [this](const Step& step, bool& ok) {
    return [this, &step, &ok] {
      try {
        ok = step();
      } catch (...) {
        fail(failure_of_exception(group_, call_));
      }
      gave_up_ |= !ok;
    };
  };
  in_turns_ = true;
  Deadline since;
  run_in_turns(body(between, between_ok), body(inside, inside_ok),
               [&](int rests) { rest(rests, since); });
  in_turns_ = false;
  return between_ok && inside_ok;
}

bool HostCollective::run_parts(std::size_t parts, const Pipeline& pipeline) {
  if (is_alone() || !overlaps_parts(parts)) {
    for (std::size_t part = 0; part < parts; ++part) {
      if (part != 0) scratch().reset();
      if (!pipeline.before(part, scratch()) || !pipeline.between(part, scratch()) ||
          !pipeline.after(part))
        return false;
    }
    return true;
  }
  std::size_t prepared = 0, exchanged = 0;
  const auto inside = [&] {
    for (std::size_t part = 0; part <= parts; ++part) {
      if (part < parts) {
        group_.scratch(part).reset();
        if (!pipeline.before(part, group_.scratch(part))) return false;
        ++prepared;
        give_turn();
      }
      if (part == 0) continue;
      if (!await_other([&] { return exchanged >= part; }) || !pipeline.after(part - 1))
        return false;
    }
    return true;
  };
  const auto between = [&] {
    while (exchanged < parts) {
      if (!await_other([&] { return prepared > exchanged; }) ||
          !pipeline.between(exchanged, group_.scratch(exchanged)))
        return false;
      ++exchanged;
      give_turn();
    }
    return true;
  };
  return enter() && take_turns(between, inside);
}

// Both blocks and stages wait, and have since `since`, where `rests` is not 0.
void HostCollective::rest(int rests, Deadline& since) {
  if (Fiber::running()) return use_.without([] { Fiber::yield(Poll::idle); });
  const auto now = steady_clock::now();
  if (rests == 0) since = now;
  const WaitPolicy& policy = group_.team()->policy();
  if (policy.spins() ? now < since + kShortestNap : rests < policy.yields)
    return use_.without([&] { policy.spins() ? policy.pause() : std::this_thread::yield(); });
  // Nothing but the time wakes it for a rank of its host.
  const Duration nap = nap_after(now - since, kShortestNap, kLongestNap);
  std::vector<pollfd>& polled = group_.links().polled();
  use_.without([&] {
    WaitLook::due();
    Links::sleep(polled, nap);
  });
}

// Why a connection ended, if that is known soon: a rank that died, say.
std::shared_ptr<const Failure> HostCollective::cause_of(Failure otherwise) const {
  Control& control = group_.control();
  const auto now = steady_clock::now();
  Duration patience =
      std::clamp<Duration>(call_.deadline - now, kLeastLossPatience, Links::kLossPatience);
  if (is_async_) {
    while (!control.broken() && steady_clock::now() < now + patience) Fiber::yield(Poll::idle);
    patience = {};
  }
  return control.resolve_cause(std::move(otherwise), patience);
}

bool HostCollective::give_up(Links::End end) {
  Control& control = group_.control();
  if (end == Links::End::broken) {
    fail(control.failure());
  } else if (end == Links::End::timed_out) {
    // The rank that is waited for may itself wait, for one that its host knows to be stopped.
    const std::vector<Member>& members = group_.context().members;
    const std::vector<int> awaited = group_.links().awaited();
    Failure failure = control.timed_out(
        call_, fmt::format("waiting for blocks of data to or from {}", names_of(members, awaited)));
    if (failure.rank < 0 && awaited.size() == 1)  // of several, those who live wait themselves
      failure = caused_by(members[static_cast<std::size_t>(awaited.front())], std::move(failure));
    fail(cause_of(std::move(failure)));
  } else {
    Failure failure = in_call(call_, group_.links().failure_of_loss(group_.context()));
    fail(group_.links().loss_is_reason() ? control.fail(std::move(failure))
                                         : cause_of(std::move(failure)));
  }
  return false;
}

std::shared_ptr<const Failure> execute(HostGroup& group, const Call& call) noexcept {
  try {
    if (group.control().broken()) return group.control().failure();
    if (is_small(group, call.op)) return execute_small(group, call);
    HostCollective collective(group, call);
    const bool ok = std::visit(
        [&]<class T>(const T& op) {
          if constexpr (requires { op.peer; })
            return false;
          else if constexpr (std::is_same_v<T, Barrier>)
            return collective.enter();
          else
            return run(collective, op) && collective.enter() && collective.settle();
        },
        call.op);
    group.reset_scratch();
    return ok ? nullptr : collective.failure();
  } catch (...) {
    return failure_of_exception(group, call);
  }
}

PlanReport report_plan(const HostGroup& group, const PlanQuery& query) {
  const Placement& placement = group.placement();
  if (is_reduction(query.op)) {
    if (is_small(group, query.op, query.bytes)) return {};
    return group.plan().report(reduction_traffic(
        placement, group.partial_sums().values(query.dtype, ReduceOp::sum), query.op, query.dtype,
        ReduceOp::sum, query.bytes / size_of(query.dtype)));
  }
  const bool is_whole = query.op == OpKind::broadcast;  // else a block of each rank
  const std::size_t given =
      query.bytes / (is_whole ? 1 : static_cast<std::size_t>(placement.size()));
  if (is_small(group, query.op, given)) return {};
  const std::size_t givers = is_whole ? 1 : static_cast<std::size_t>(placement.most_ranks());
  return group.plan().report({.op = query.op,
                              .hosts = placement.hosts(),
                              .lanes = placement.lanes(),
                              .inputs = given * givers});
}

}}}  // namespace c10d::v0::native
