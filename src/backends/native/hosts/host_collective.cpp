// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/host_collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <type_traits>
#include <utility>
#include <variant>

#include "src/backends/common/failures.h"
#include "src/backends/native/hosts/enter.h"
#include "src/backends/native/hosts/small.h"
#include "src/base/members.h"
#include "src/sync/fiber.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLeastLossPatience{300};  // past the deadline of the op

// Why a connection ended, if that is known soon: a rank that died, say.
std::shared_ptr<const Failure> cause_of(Control& control, Failure otherwise, Deadline deadline) {
  const auto now = steady_clock::now();
  Duration patience =
      std::clamp<Duration>(deadline - now, kLeastLossPatience, Links::kLossPatience);
  if (Fiber::running()) {
    while (!control.broken() && steady_clock::now() < now + patience) Fiber::yield(Poll::idle);
    patience = {};
  }
  return control.resolve_cause(std::move(otherwise), patience);
}

}  // namespace

bool HostCollective::enter() {
  if (entered_) return true;
  entered_ = true;
  group_.links().push();
  failure_ = use_.without([this] { return native::enter(group_.control(), call_); });
  return !failure_;
}

bool HostCollective::give_up(Links::End end) {
  Control& control = group_.control();
  if (end == Links::End::broken) {
    failure_ = control.failure();
  } else if (end == Links::End::timed_out) {
    // The rank that is waited for may itself wait, for one that its host knows to be stopped.
    const std::vector<Member>& members = group_.context().members;
    const std::vector<int> awaited = group_.links().awaited();
    Failure failure = control.timed_out(
        call_, fmt::format("waiting for blocks of data to or from {}", names_of(members, awaited)));
    if (failure.rank < 0 && !awaited.empty())
      failure = caused_by(members[static_cast<std::size_t>(awaited.front())], std::move(failure));
    failure_ = cause_of(control, std::move(failure), call_.deadline);
  } else {
    Failure failure = in_call(call_, group_.links().failure_of_loss(group_.context()));
    failure_ = group_.links().loss_is_reason()
                   ? control.fail(std::move(failure))
                   : cause_of(control, std::move(failure), call_.deadline);
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
    group.scratch().reset();
    return ok ? nullptr : collective.failure();
  } catch (const std::bad_alloc&) {
    return group.control().fail(failure_in(group.context(), call, Code::out_of_resources,
                                           "no memory for what the op needs beside its buffers",
                                           group.context().rank));
  } catch (const std::exception& error) {
    return group.control().fail(
        failure_in(group.context(), call, Code::backend_error, error.what(), group.context().rank));
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
  const std::size_t given = query.bytes / static_cast<std::size_t>(placement.size());
  if (is_small(group, query.op, given)) return {};
  return group.plan().report({.op = query.op,
                              .hosts = placement.hosts(),
                              .lanes = placement.lanes(),
                              .inputs = given * static_cast<std::size_t>(placement.most_ranks())});
}

}}}  // namespace c10d::v0::native
