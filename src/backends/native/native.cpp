// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/native.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/backends/common/failures.h"
#include "src/backends/common/host_reduction.h"
#include "src/backends/native/collectives/collectives.h"
#include "src/backends/native/hosts/host_collective.h"
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
  explicit NativeBackend(std::shared_ptr<native::Team> team)
      : context_(team->context()),
        team_(std::move(team)),
        queue_(std::make_shared<native::Queue>(native::runner_of(team_))),
        messages_(std::make_shared<native::Messages>(team_)) {}
  explicit NativeBackend(std::shared_ptr<native::HostGroup> hosts)
      : context_(hosts->context()),
        hosts_(std::move(hosts)),
        team_(hosts_->team()),
        queue_(std::make_shared<native::Queue>(native::runner_of(hosts_))),
        messages_(std::make_shared<native::Messages>(team_, hosts_->take_routes())) {}

  Support supports(const Query& query) const override { return native_supports(query); }

  bool reduces_along_rank_tree() const noexcept override { return true; }

  Work launch(const Call& call) override {
    return is_point_to_point(kind_of(call.op)) ? messages_->launch(call) : queue_->launch(call);
  }

  std::optional<Received> probe(int peer, std::uint32_t tag) override {
    return messages_->probe(peer, tag);
  }

  Allocation allocate(std::size_t bytes, Device device, Deadline deadline) override {
    return hosts_ ? Backend::allocate(bytes, device, deadline) : team_->allocate(bytes, deadline);
  }

  std::unique_ptr<Backend> new_group(BackendContext context,
                                     const std::vector<int>& /*parent_ranks*/) override {
    return make(context, team_->neighbours());
  }

  // Every wait of an op polls Control::broken() at least once a millisecond.
  void abort() noexcept override {}

  void look_after() override {
    if (!hosts_) return;
    hosts_->links().look_after();
    messages_->look_after();
  }

  void shutdown(Deadline deadline) override {
    if (queue_->drain(deadline) && messages_->drain(deadline)) {
      messages_->warn_of_unreceived();
      return;
    }
    context_.control->fail(failure_in(context_, Code::destroyed,
                                      "the group was shut down while async ops were pending",
                                      context_.rank));
  }

  PlanReport plan(const PlanQuery& query) const override {
    if (hosts_) return native::report_plan(*hosts_, query);
    return native::report_plan(team_->plan(), team_->cost_model(), team_->round_trips(), query);
  }

  std::string description() const override {
    const native::TeamProfile& host = team_->cost_model().host();
    std::string text =
        fmt::format("native, {}shared memory, {} KiB staging per rank, {}",
                    hosts_ ? describe(*hosts_) + ", in a host " : "",
                    team_->layout().staging_bytes() >> 10, describe(team_->policy()));
    if (!team_->round_trips().ns.empty())
      text += fmt::format(", {} ({})", native::describe(team_->round_trips(), 2 * host.hop_us),
                          host.far ? "far" : "near");
    return text + (host.cma ? ", cma" : ", no cma");
  }

  static std::unique_ptr<NativeBackend> make(const BackendContext& context, int neighbours) {
    if (context.all_local())
      return std::make_unique<NativeBackend>(std::make_shared<native::Team>(context, neighbours));
    return std::make_unique<NativeBackend>(
        std::make_shared<native::HostGroup>(context, neighbours));
  }

 private:
  const BackendContext context_;
  const std::shared_ptr<native::HostGroup> hosts_;  // null: all ranks are on this host
  const std::shared_ptr<native::Team> team_;        // of the ranks on this host
  const std::shared_ptr<native::Queue> queue_;
  const std::shared_ptr<native::Messages> messages_;
};

int ranks_here(const BackendContext& context) {
  return static_cast<int>(std::ranges::count_if(
      context.members, [](const Member& member) { return member.same_host; }));
}

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
  return NativeBackend::make(context, ranks_here(context));
}

}}  // namespace c10d::v0
