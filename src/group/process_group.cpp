// SPDX-License-Identifier: BSD-3-Clause
// The public calls of ProcessGroup; each op is one line that builds its descriptor for the funnel.
#include "c10d/process_group.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "src/base/log.h"
#include "src/base/timeouts.h"
#include "src/control/control_plane.h"
#include "src/device/gpu.h"
#include "src/group/check_arguments.h"
#include "src/group/end_groups.h"
#include "src/group/group_state.h"
#include "src/group/store_exchange.h"

namespace c10d { inline namespace v0 {

Received ProcessGroup::submit(const Op& op, CallOptions options) const {
  return require_state(state_).submit(op, options, detail::GroupState::Mode::blocking).received();
}
Work AsyncGroup::submit(const Op& op, CallOptions options) const {
  return require_state(state_).submit(op, options, detail::GroupState::Mode::async);
}

void ProcessGroup::all_reduce(View buffer, ReduceOp op, CallOptions options) const {
  submit(AllReduce{buffer, buffer, op}, options);
}
Work AsyncGroup::all_reduce(View buffer, ReduceOp op, CallOptions options) const {
  return submit(AllReduce{buffer, buffer, op}, options);
}
void ProcessGroup::all_reduce(View output, ConstView input, ReduceOp op,
                              CallOptions options) const {
  submit(AllReduce{output, input, op}, options);
}
Work AsyncGroup::all_reduce(View output, ConstView input, ReduceOp op, CallOptions options) const {
  return submit(AllReduce{output, input, op}, options);
}
void ProcessGroup::broadcast(View buffer, int root, CallOptions options) const {
  submit(Broadcast{buffer, buffer, root}, options);
}
Work AsyncGroup::broadcast(View buffer, int root, CallOptions options) const {
  return submit(Broadcast{buffer, buffer, root}, options);
}
void ProcessGroup::broadcast(View output, ConstView input, int root, CallOptions options) const {
  submit(Broadcast{output, input, root}, options);
}
Work AsyncGroup::broadcast(View output, ConstView input, int root, CallOptions options) const {
  return submit(Broadcast{output, input, root}, options);
}
void ProcessGroup::all_gather(View output, ConstView input, CallOptions options) const {
  submit(AllGather{output, input}, options);
}
Work AsyncGroup::all_gather(View output, ConstView input, CallOptions options) const {
  return submit(AllGather{output, input}, options);
}
void ProcessGroup::all_gather_v(View output, ConstView input, const Counts& counts,
                                CallOptions options) const {
  submit(AllGatherV{output, input, counts}, options);
}
Work AsyncGroup::all_gather_v(View output, ConstView input, const Counts& counts,
                              CallOptions options) const {
  return submit(AllGatherV{output, input, counts}, options);
}
void ProcessGroup::reduce_scatter(View output, ConstView input, ReduceOp op,
                                  CallOptions options) const {
  submit(ReduceScatter{output, input, op}, options);
}
Work AsyncGroup::reduce_scatter(View output, ConstView input, ReduceOp op,
                                CallOptions options) const {
  return submit(ReduceScatter{output, input, op}, options);
}
void ProcessGroup::reduce_scatter_v(View output, ConstView input, const Counts& counts, ReduceOp op,
                                    CallOptions options) const {
  submit(ReduceScatterV{output, input, counts, op}, options);
}
Work AsyncGroup::reduce_scatter_v(View output, ConstView input, const Counts& counts, ReduceOp op,
                                  CallOptions options) const {
  return submit(ReduceScatterV{output, input, counts, op}, options);
}
void ProcessGroup::reduce(View output, ConstView input, int root, ReduceOp op,
                          CallOptions options) const {
  submit(Reduce{output, input, op, root}, options);
}
Work AsyncGroup::reduce(View output, ConstView input, int root, ReduceOp op,
                        CallOptions options) const {
  return submit(Reduce{output, input, op, root}, options);
}
void ProcessGroup::scan(View buffer, ReduceOp op, CallOptions options) const {
  submit(Scan{buffer, buffer, op}, options);
}
Work AsyncGroup::scan(View buffer, ReduceOp op, CallOptions options) const {
  return submit(Scan{buffer, buffer, op}, options);
}
void ProcessGroup::scan(View output, ConstView input, ReduceOp op, CallOptions options) const {
  submit(Scan{output, input, op}, options);
}
Work AsyncGroup::scan(View output, ConstView input, ReduceOp op, CallOptions options) const {
  return submit(Scan{output, input, op}, options);
}
void ProcessGroup::exscan(View buffer, ReduceOp op, CallOptions options) const {
  submit(Exscan{buffer, buffer, op}, options);
}
Work AsyncGroup::exscan(View buffer, ReduceOp op, CallOptions options) const {
  return submit(Exscan{buffer, buffer, op}, options);
}
void ProcessGroup::exscan(View output, ConstView input, ReduceOp op, CallOptions options) const {
  submit(Exscan{output, input, op}, options);
}
Work AsyncGroup::exscan(View output, ConstView input, ReduceOp op, CallOptions options) const {
  return submit(Exscan{output, input, op}, options);
}
void ProcessGroup::gather(View output, ConstView input, int root, CallOptions options) const {
  submit(Gather{output, input, root}, options);
}
Work AsyncGroup::gather(View output, ConstView input, int root, CallOptions options) const {
  return submit(Gather{output, input, root}, options);
}
void ProcessGroup::gather_v(View output, ConstView input, const Counts& counts, int root,
                            CallOptions options) const {
  submit(GatherV{output, input, counts, root}, options);
}
Work AsyncGroup::gather_v(View output, ConstView input, const Counts& counts, int root,
                          CallOptions options) const {
  return submit(GatherV{output, input, counts, root}, options);
}
void ProcessGroup::scatter(View output, ConstView input, int root, CallOptions options) const {
  submit(Scatter{output, input, root}, options);
}
Work AsyncGroup::scatter(View output, ConstView input, int root, CallOptions options) const {
  return submit(Scatter{output, input, root}, options);
}
void ProcessGroup::scatter_v(View output, ConstView input, const Counts& counts, int root,
                             CallOptions options) const {
  submit(ScatterV{output, input, counts, root}, options);
}
Work AsyncGroup::scatter_v(View output, ConstView input, const Counts& counts, int root,
                           CallOptions options) const {
  return submit(ScatterV{output, input, counts, root}, options);
}
void ProcessGroup::all_to_all(View output, ConstView input, CallOptions options) const {
  submit(AllToAll{output, input}, options);
}
Work AsyncGroup::all_to_all(View output, ConstView input, CallOptions options) const {
  return submit(AllToAll{output, input}, options);
}
void ProcessGroup::all_to_all_v(View output, ConstView input, const Counts& output_counts,
                                const Counts& input_counts, CallOptions options) const {
  submit(AllToAllV{output, input, output_counts, input_counts}, options);
}
Work AsyncGroup::all_to_all_v(View output, ConstView input, const Counts& output_counts,
                              const Counts& input_counts, CallOptions options) const {
  return submit(AllToAllV{output, input, output_counts, input_counts}, options);
}
void ProcessGroup::barrier(CallOptions options) const { submit(Barrier{}, options); }
Work AsyncGroup::barrier(CallOptions options) const { return submit(Barrier{}, options); }
void ProcessGroup::send(ConstView input, int peer, std::uint32_t tag, CallOptions options) const {
  submit(Send{input, peer, tag}, options);
}
Work AsyncGroup::send(ConstView input, int peer, std::uint32_t tag, CallOptions options) const {
  return submit(Send{input, peer, tag}, options);
}
Received ProcessGroup::recv(View output, int peer, std::uint32_t tag, CallOptions options) const {
  return submit(Recv{output, peer, tag}, options);
}
Work AsyncGroup::recv(View output, int peer, std::uint32_t tag, CallOptions options) const {
  return submit(Recv{output, peer, tag}, options);
}

Work ProcessGroup::isend(ConstView input, int peer, std::uint32_t tag, CallOptions options) const {
  return async().send(input, peer, tag, options);
}
Work ProcessGroup::irecv(View output, int peer, std::uint32_t tag, CallOptions options) const {
  return async().recv(output, peer, tag, options);
}
Received ProcessGroup::sendrecv(ConstView input, int to, View output, int from, std::uint32_t tag,
                                CallOptions options) const {
  const Op message = Send{input, to, tag};
  detail::GroupState& state = require_state(state_);
  state.check_alive();
  {
    Exclusive exclusive(state);
    state.check(message, options);  // before a recv waits for it
  }
  if (input.device.type == DeviceType::cuda || output.device.type == DeviceType::cuda) {
    // On one stream the recv would hold the send back.
    Batch both = batch(options);
    both.add(Recv{output, from, tag});
    both.add(Send{input, to, tag});
    both.submit();
    return {.source = from, .count = output.count};
  }
  const Work work = irecv(output, from, tag, options);
  submit(message, options);
  work.wait();
  return work.received();
}
AsyncGroup ProcessGroup::async() const noexcept { return AsyncGroup(state_); }

ProcessGroup::ProcessGroup() noexcept = default;
ProcessGroup::ProcessGroup(std::shared_ptr<detail::GroupState> state)
    : state_(state.get(), [state](detail::GroupState*) mutable { end_group(std::move(state)); }) {}
ProcessGroup::ProcessGroup(const ProcessGroup&) noexcept = default;
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;
ProcessGroup& ProcessGroup::operator=(const ProcessGroup&) noexcept = default;
ProcessGroup& ProcessGroup::operator=(ProcessGroup&&) noexcept = default;
ProcessGroup::~ProcessGroup() = default;

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
Device ProcessGroup::device() const { return require_state(state_).gpu; }
Store& ProcessGroup::store() const { return *require_state(state_).user_store; }
Duration ProcessGroup::timeout() const { return Duration(require_state(state_).timeout.load()); }
void ProcessGroup::set_timeout(Duration timeout) const {
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

void ProcessGroup::monitored_barrier(std::optional<Duration> timeout) const {
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

Allocation ProcessGroup::allocate_bytes(std::size_t bytes, Device device) const {
  detail::GroupState& state = require_state(state_);
  state.check_alive();
  const bool on_cpu = device.type == DeviceType::cpu;
  if (!on_cpu && !(device == state.gpu))
    throw InvalidArgument(fmt::format("allocate: on {}, and {}", name_of(device),
                                      state.gpu.type == DeviceType::cpu
                                          ? "this group has no GPU"
                                          : "the GPU of this group is " + name_of(state.gpu)));
  Exclusive exclusive(state);
  return state.with_record_dump([&] {
    if (const auto failure = state.control->failure()) throw_failure(*failure);
    const Deadline deadline = std::chrono::steady_clock::now() + Duration(state.timeout.load());
    // A backend does not notice that a rank left which never came.
    exchange_with_all(state, GroupCallKind::allocate,
                      fmt::format("allocate({} bytes{})", bytes, on_cpu ? "" : " on a GPU"),
                      fmt::format("allocate/{}", state.allocations++), "", deadline);
    return state.backend->allocate(bytes, device, deadline);
  });
}

void ProcessGroup::abort(std::string_view why) const noexcept {
  if (state_) state_->abort(why);
}

void ProcessGroup::shutdown(Duration timeout) const {
  detail::GroupState& state = require_state(state_);
  state.check_not_forked();
  Exclusive exclusive(state);
  state.shutdown(timeout);
}

Batch ProcessGroup::batch(CallOptions options) const {
  require_state(state_).check_alive();
  return Batch(state_, options);
}

}}  // namespace c10d::v0
