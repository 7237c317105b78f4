// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/native.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "src/backends/common/failures.h"
#include "src/backends/common/host_reduction.h"
#include "src/backends/native/collectives/queue.h"
#include "src/backends/native/p2p/messages.h"
#include "src/backends/native/plan/tuning_file.h"
#include "src/backends/native/team/team.h"

namespace c10d { inline namespace v0 {
namespace {

// With more, a slot of staging has less than a cache line for each rank of an all_to_all.
constexpr int kMaxRanks = 2048;

// Ops share what they need, so that the backend may be destroyed while one still runs.
class NativeBackend final : public Backend {
 public:
  NativeBackend(const BackendContext& context, int neighbours)
      : team_(std::make_shared<native::Team>(context, neighbours)),
        queue_(std::make_shared<native::Queue>(team_)),
        messages_(std::make_shared<native::Messages>(team_)) {}

  Support supports(const Query& query) const override { return native_supports(query); }

  bool reduces_along_rank_tree() const noexcept override { return true; }

  Work launch(const Call& call) override {
    return is_point_to_point(kind_of(call.op)) ? messages_->launch(call) : queue_->launch(call);
  }

  std::optional<Received> probe(int peer, std::uint32_t tag) override {
    return messages_->probe(peer, tag);
  }

  Allocation allocate(std::size_t bytes, Device /*device*/, Deadline deadline) override {
    return team_->allocate(bytes, deadline);
  }

  std::unique_ptr<Backend> new_group(BackendContext context,
                                     const std::vector<int>& /*parent_ranks*/) override {
    return std::make_unique<NativeBackend>(context, team_->neighbours());
  }

  // Every wait of an op polls Control::broken() at least once a millisecond.
  void abort() noexcept override {}

  void shutdown(Deadline deadline) override {
    if (queue_->drain(deadline) && messages_->drain(deadline)) {
      messages_->warn_of_unreceived();
      return;
    }
    team_->control().fail(failure_in(team_->context(), Code::destroyed,
                                     "the group was shut down while async ops were pending",
                                     team_->rank()));
  }

  PlanReport plan(const PlanQuery& query) const override {
    return native::report_plan(team_->plan(), team_->cost_model(), team_->round_trips(), query);
  }

  std::string description() const override {
    const native::HostProfile& host = team_->cost_model().host();
    std::string text =
        fmt::format("native, shared memory, {} KiB staging per rank, {}",
                    team_->layout().staging_bytes() >> 10, describe(team_->policy()));
    if (!team_->round_trips().ns.empty())
      text += fmt::format(", {} ({})", native::describe(team_->round_trips(), 2 * host.hop_us),
                          host.far ? "far" : "near");
    return text + (host.cma ? ", cma" : ", no cma");
  }

 private:
  const std::shared_ptr<native::Team> team_;
  const std::shared_ptr<native::Queue> queue_;
  const std::shared_ptr<native::Messages> messages_;
};

}  // namespace

std::size_t native_bytes_per_rank(int ranks) noexcept {
  return native::Layout(ranks).bytes() / static_cast<std::size_t>(ranks);
}

Support native_supports(const Query& query) {
  if (query.device != DeviceType::cpu)
    return {.ok = false, .reason = "native moves memory of the host only, not of a GPU"};
  if (!is_reduction(query.op)) return {};
  const std::string_view reason = why_not_on_host(query.op, query.reduce_op, query.dtype);
  return {.ok = reason.empty(), .reason = std::string(reason)};
}

std::unique_ptr<Backend> make_native_backend(BackendContext context) {
  if (context.size > kMaxRanks)
    throw_failure(failure_in(
        context, Code::unsupported,
        fmt::format("native takes at most {} ranks, not {}; use mpi", kMaxRanks, context.size),
        context.rank));
  if (!context.all_local()) {
    std::string others;
    for (const Member& member : context.members)
      if (!member.same_host)
        others += fmt::format("{}{} ({})", others.empty() ? "" : ", ", member.rank, member.host);
    throw_failure(failure_in(context, Code::unsupported,
                             fmt::format("native works inside one host only: ranks {} are on other "
                                         "hosts, or in a network or pid namespace of their own; "
                                         "use gloo or mpi",
                                         others),
                             context.rank));
  }
  return std::make_unique<NativeBackend>(context, context.size);
}

}}  // namespace c10d::v0
