// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

#include <exception>
#include <variant>

#include "src/backends/common/failures.h"
#include "src/backends/common/single_rank.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

bool run_op(Collective& collective, const Op& any) {
  return std::visit(
      [&](const auto& op) {
        if constexpr (requires { op.peer; })
          return false;
        else
          return run(collective, op);
      },
      any);
}

}  // namespace

bool run(Collective& collective, const Barrier& /*op*/) { return collective.enter(); }

// An exception in here breaks this rank alone, and the others wait for it.
std::shared_ptr<const Failure> execute(Team& team, const Call& call) noexcept {
  try {
    if (team.size() == 1) {
      std::visit([](const auto& op) { run_alone(op); }, call.op);
      return nullptr;
    }
    Collective collective(team, call);
    return collective.finish(run_op(collective, call.op)) ? nullptr : collective.failure();
  } catch (const std::exception& error) {
    return team.control().fail(failure_in(team.context(), call, Code::backend_error, error.what(),
                                          team.number(team.rank())));
  }
}

}}}  // namespace c10d::v0::native
