// SPDX-License-Identifier: BSD-3-Clause
// The public calls of ProcessGroup; each op is one line that builds its descriptor for the funnel.
#include "c10d/process_group.h"

#include <fmt/format.h>

#include <atomic>
#include <limits>
#include <optional>
#include <utility>

#include "src/base/log.h"
#include "src/base/timeouts.h"
#include "src/control/control_plane.h"
#include "src/group/check_arguments.h"
#include "src/group/group_state.h"
#include "src/group/store_exchange.h"

namespace c10d { inline namespace v0 {

namespace {

// Until the process ends, and where leak checkers find it. Takes no lock: a fork may have left one
// held.
void keep_forever(std::shared_ptr<detail::GroupState> state) {
  struct Kept {
    std::shared_ptr<detail::GroupState> state;
    Kept* next;
  };
  static std::atomic<Kept*> first{nullptr};
  auto* const kept = new Kept{std::move(state), first.load()};
  while (!first.compare_exchange_weak(kept->next, kept)) {
  }
}

}  // namespace

using Counts = std::span<const std::size_t>;

Work ProcessGroup::submit(const Op& op, CallOptions options) {
  return require_state(state_).submit(op, options);
}
Work ProcessGroup::all_reduce(Tensor buffer, ReduceOp op, CallOptions options) {
  return submit(AllReduce{buffer, buffer, op}, options);
}
Work ProcessGroup::all_reduce(Tensor output, ConstTensor input, ReduceOp op, CallOptions options) {
  return submit(AllReduce{output, input, op}, options);
}
Work ProcessGroup::broadcast(Tensor buffer, int root, CallOptions options) {
  return submit(Broadcast{buffer, buffer, root}, options);
}
Work ProcessGroup::broadcast(Tensor output, ConstTensor input, int root, CallOptions options) {
  return submit(Broadcast{output, input, root}, options);
}
Work ProcessGroup::all_gather(Tensor output, ConstTensor input, CallOptions options) {
  return submit(AllGather{output, input}, options);
}
Work ProcessGroup::all_gather_v(Tensor output, ConstTensor input, Counts counts,
                                CallOptions options) {
  return submit(AllGatherV{output, input, counts}, options);
}
Work ProcessGroup::reduce_scatter(Tensor output, ConstTensor input, ReduceOp op,
                                  CallOptions options) {
  return submit(ReduceScatter{output, input, op}, options);
}
Work ProcessGroup::reduce_scatter_v(Tensor output, ConstTensor input, Counts counts, ReduceOp op,
                                    CallOptions options) {
  return submit(ReduceScatterV{output, input, counts, op}, options);
}
Work ProcessGroup::reduce(Tensor output, ConstTensor input, int root, ReduceOp op,
                          CallOptions options) {
  return submit(Reduce{output, input, op, root}, options);
}
Work ProcessGroup::gather(Tensor output, ConstTensor input, int root, CallOptions options) {
  return submit(Gather{output, input, root}, options);
}
Work ProcessGroup::gather_v(Tensor output, ConstTensor input, Counts counts, int root,
                            CallOptions options) {
  return submit(GatherV{output, input, counts, root}, options);
}
Work ProcessGroup::scatter(Tensor output, ConstTensor input, int root, CallOptions options) {
  return submit(Scatter{output, input, root}, options);
}
Work ProcessGroup::scatter_v(Tensor output, ConstTensor input, Counts counts, int root,
                             CallOptions options) {
  return submit(ScatterV{output, input, counts, root}, options);
}
Work ProcessGroup::all_to_all(Tensor output, ConstTensor input, CallOptions options) {
  return submit(AllToAll{output, input}, options);
}
Work ProcessGroup::all_to_all_v(Tensor output, ConstTensor input, Counts output_counts,
                                Counts input_counts, CallOptions options) {
  return submit(AllToAllV{output, input, output_counts, input_counts}, options);
}
Work ProcessGroup::barrier(CallOptions options) { return submit(Barrier{}, options); }
Work ProcessGroup::send(ConstTensor input, int peer, std::uint32_t tag, CallOptions options) {
  return submit(Send{input, peer, tag}, options);
}
Work ProcessGroup::recv(Tensor output, int peer, std::uint32_t tag, CallOptions options) {
  return submit(Recv{output, peer, tag}, options);
}
Work ProcessGroup::isend(ConstTensor input, int peer, std::uint32_t tag, CallOptions options) {
  options.async = true;
  return submit(Send{input, peer, tag}, options);
}
Work ProcessGroup::irecv(Tensor output, int peer, std::uint32_t tag, CallOptions options) {
  options.async = true;
  return submit(Recv{output, peer, tag}, options);
}

ProcessGroup::ProcessGroup() noexcept = default;
ProcessGroup::ProcessGroup(std::shared_ptr<detail::GroupState> state) noexcept
    : state_(std::move(state)) {}
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;
ProcessGroup& ProcessGroup::operator=(ProcessGroup&& other) noexcept {
  if (this != &other) {
    ProcessGroup ended(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}

ProcessGroup::~ProcessGroup() {
  if (!state_) return;
  bool quiet = false;
  try {
    quiet = state_->process == process_generation() && state_->shutdown(std::chrono::seconds(1));
  } catch (const std::exception& error) {
    log(LogLevel::error, "group \"{}\" could not be shut down: {}", state_->context.group,
        error.what());
  }
  // In a forked child the memory is not there; and ops that ignored an abort still point to the
  // state.
  if (!quiet) keep_forever(std::move(state_));
}

ProcessGroup::operator bool() const noexcept { return state_ != nullptr; }
int ProcessGroup::rank() const { return require_state(state_).context.rank; }
int ProcessGroup::size() const { return require_state(state_).context.size; }
const std::string& ProcessGroup::id() const { return require_state(state_).context.group; }
const std::string& ProcessGroup::backend() const { return require_state(state_).backend_name; }
std::string ProcessGroup::description() const {
  return require_state(state_).backend->description();
}
bool ProcessGroup::reduces_along_rank_tree() const {
  return require_state(state_).backend->reduces_along_rank_tree();
}
PlanReport ProcessGroup::plan(const PlanQuery& query) const {
  check_query({.op = query.op, .dtype = query.dtype});
  return require_state(state_).backend->plan(query);
}
const std::vector<Member>& ProcessGroup::members() const {
  return require_state(state_).context.members;
}
Store& ProcessGroup::store() const { return *require_state(state_).user_store; }
Duration ProcessGroup::timeout() const { return Duration(require_state(state_).timeout.load()); }
void ProcessGroup::set_timeout(Duration timeout) {
  if (timeout <= Duration::zero()) throw InvalidArgument("a timeout must be positive");
  require_state(state_).timeout.store(clamp_timeout(timeout).count());
}
Support ProcessGroup::supports(const Query& query) const {
  check_query(query);
  return require_state(state_).backend->supports(query);
}
std::uint64_t ProcessGroup::sequence() const {
  return require_state(state_).collectives.load(std::memory_order_relaxed);
}
const Failure* ProcessGroup::failure() const {
  require_state(state_).check_not_forked();  // the child has not the memory that holds it
  return state_->control->failure().get();
}

void ProcessGroup::monitored_barrier(std::optional<Duration> timeout) {
  detail::GroupState& state = require_state(state_);
  state.check_alive();
  Exclusive exclusive(state);
  const Duration limit = clamp_timeout(timeout.value_or(Duration(state.timeout.load())));
  if (limit <= Duration::zero()) throw InvalidArgument("a timeout must be positive");
  state.with_record_dump([&] {
    if (const auto failure = state.control->failure()) throw_failure(*failure);
    if (const auto failure = state.control->barrier(std::chrono::steady_clock::now() + limit))
      throw_failure(*failure);
  });
}

std::size_t ProcessGroup::checked_bytes(std::size_t count, std::size_t element) {
  if (count > std::numeric_limits<std::size_t>::max() / element)
    throw InvalidArgument(
        fmt::format("allocate: {} elements of {} bytes are more than memory "
                    "can hold",
                    count, element));
  return count * element;
}

Allocation ProcessGroup::allocate_bytes(std::size_t bytes) {
  detail::GroupState& state = require_state(state_);
  state.check_alive();
  Exclusive exclusive(state);
  return state.with_record_dump([&] {
    if (const auto failure = state.control->failure()) throw_failure(*failure);
    const Deadline deadline = std::chrono::steady_clock::now() + Duration(state.timeout.load());
    // A backend does not notice that a rank left which never came.
    exchange_with_all(state, "allocate", fmt::format("allocate({} bytes)", bytes),
                      fmt::format("allocate/{}", state.allocations++), "", deadline);
    return state.backend->allocate(bytes, deadline);
  });
}

void ProcessGroup::abort(std::string_view why) const noexcept {
  if (!state_ || state_->process != process_generation() || state_->closed.load()) return;
  try {
    state_->control->revoke({.code = Code::revoked,
                             .message = fmt::format("rank {}: {}", state_->context.rank, why),
                             .rank = state_->context.rank});
    state_->backend->abort();
  } catch (const std::exception& error) {
    log(LogLevel::error, "abort of group \"{}\": {}", state_->context.group, error.what());
  }
}

void ProcessGroup::shutdown(Duration timeout) {
  detail::GroupState& state = require_state(state_);
  state.check_not_forked();
  Exclusive exclusive(state);
  state.shutdown(timeout);
}

Batch ProcessGroup::batch(CallOptions options) {
  require_state(state_).check_alive();
  return Batch(state_, options);
}

}}  // namespace c10d::v0
