// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "src/backends/common/gathered_reduction.h"
#include "src/backends/mpi/mpi_types.h"
#include "src/backends/mpi/runtime.h"
#include "src/base/members.h"

namespace c10d { inline namespace v0 {
namespace {

Support composed(const char* how) { return {.ok = true, .reason = {}, .composed = how}; }

}  // namespace

Support mpi_supports(const Query& query) {
  if (query.device != DeviceType::cpu)
    return {.ok = false, .reason = "mpi works on CPU memory only", .composed = {}};
  if (query.op == OpKind::all_to_all_v) return composed("send + recv");
  if (!is_reduction(query.op)) return {};
  if (const auto why = why_unsupported(query.reduce_op, query.dtype); !why.empty())
    return {.ok = false, .reason = std::string(why), .composed = {}};
  if (collects_first(query.dtype, query.reduce_op)) {
    if (query.op == OpKind::all_reduce) return composed("send + recv + local reduce + all_gather");
    if (query.op == OpKind::reduce) return composed("send + recv + local reduce + gather");
    return composed("send + recv + local reduce");
  }
  if (query.reduce_op == ReduceOp::avg) return composed("sum, then a local division");
  if (query.reduce_op == ReduceOp::premul_sum) return composed("a local product, then sum");
  return {};
}

MpiBackend::MpiBackend(BackendContext context, Channel channel)
    : context_(std::move(context)),
      sent_(static_cast<std::size_t>(context_.size)),
      transfers_(std::make_shared<Transfers>(context_)),
      collectives_(std::make_unique<Collectives>(context_, std::move(channel), transfers_)) {}

// Communicators of a group that did not end in order stay: freeing one can wait for peers.
MpiBackend::~MpiBackend() {
  give_up(std::move(collectives_));
  transfers_->give_up_all();
}

Work MpiBackend::launch(const Call& call) {
  if (const auto* send = std::get_if<Send>(&call.op))
    return launch_message(call, *send, sent_[static_cast<std::size_t>(send->peer)]++);
  if (const auto* recv = std::get_if<Recv>(&call.op)) return launch_message(call, *recv, 0);
  return collectives_->launch(call);
}

template <class T>
Work MpiBackend::launch_message(const Call& call, const T& op, std::uint32_t number) {
  const Channel& channel = collectives_->channel();
  if (channel.headers == MPI_COMM_NULL)
    return Work::failed({.code = Code::unsupported,
                         .message = "mpi: a group of one has nobody to send to",
                         .rank = context_.rank});
  if (op.tag > static_cast<std::uint32_t>(mpi_tag_limit()))
    return Work::failed({.code = Code::unsupported,
                         .message = fmt::format("this MPI has no tags above {}", mpi_tag_limit()),
                         .rank = context_.rank});
  try {
    std::unique_ptr<Message> message;
    if constexpr (std::is_same_v<T, Send>)
      message = std::make_unique<Message>(channel, op, number);
    else
      message = std::make_unique<Message>(channel, op);
    if (call.async) return transfers_->finish_later(call, std::move(message));
    const FailurePtr failure = transfers_->finish(call, message);
    return failure ? Work::failed(*failure) : Work::received_from(message->source());
  } catch (const std::exception& error) {
    return Work::failed(*transfers_->library_error(call, error.what()));
  }
}

namespace {

Failure late(const BackendContext& context) {
  const std::vector<int> idle = not_running(context.members);
  Failure failure{
      .code = Code::timed_out,
      .message = fmt::format("rank {} waited in vain for the others while MPI started "
                             "or made the communicators of group \"{}\"; {}",
                             context.rank, context.group, about_not_running(context.members, idle)),
      .group = context.group};
  if (idle.empty()) return failure;
  const Member& first = context.members[static_cast<std::size_t>(idle.front())];
  failure.rank = first.rank;
  failure.host = first.host;
  failure.pid = first.pid;
  return failure;
}

// Makes the backend of a group out of the channel that `make(look)` returns. All ranks come to the
// MPI calls there or none does.
template <class Make>
std::unique_ptr<Backend> make_together(BackendContext context, const Make& make) {
  const Deadline deadline = std::chrono::steady_clock::now() + context.timeout;
  if (const auto failure = context.control->barrier(deadline)) throw_failure(*failure);
  const auto look = [&] {
    if (const auto failure = context.control->failure()) throw_failure(*failure);
    if (std::chrono::steady_clock::now() >= deadline) throw_failure(late(context));
  };
  const MpiHold hold;  // who exits meanwhile must not wait for the others in MPI_Finalize
  try {
    Channel channel = make(look);
    return std::make_unique<MpiBackend>(std::move(context), std::move(channel));
  } catch (const DistError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw_failure({.code = Code::backend_error,
                   .message = fmt::format("MPI could not make a group: {}", error.what()),
                   .rank = context.rank,
                   .group = context.group});
  }
}

}  // namespace

std::unique_ptr<Backend> MpiBackend::new_group(BackendContext context,
                                               const std::vector<int>& parent_ranks) {
  if (context.size == 1) return std::make_unique<MpiBackend>(std::move(context), Channel());
  // The tag tells apart groups that members make at the same time.
  const int tag = static_cast<int>(std::hash<std::string>()(context.group) % 32768);
  return make_together(std::move(context), [&](const Channel::Look& look) {
    return Channel::subset(collectives_->channel().collectives, parent_ranks, tag, look);
  });
}

void MpiBackend::shutdown(Deadline deadline) {
  if (context_.control->broken()) deadline = std::min(deadline, Deadline::clock::now() + kGrace);
  if (!hold_ || !collectives_->idle(deadline) || !transfers_->finish_all(deadline)) return;
  if (context_.size > 1 && !context_.control->broken()) {
    const auto turn = mpi_turn();
    collectives_->channel().free_communicators();
  }
  hold_.reset();
}

std::string MpiBackend::description() const {
  return fmt::format("{}, {}", mpi_version(),
                     mpi_is_concurrent() ? "MPI_THREAD_MULTIPLE" : "MPI_THREAD_SERIALIZED");
}

namespace {

std::unique_ptr<Backend> make_mpi_backend(BackendContext context) {
  if (context.size == 1) return std::make_unique<MpiBackend>(std::move(context), Channel());
  check_startable(context);
  return make_together(context, [&](const Channel::Look& look) {
    start_mpi(context, look);
    return Channel::duplicate(MPI_COMM_WORLD, look);
  });
}

}  // namespace
}}  // namespace c10d::v0

using namespace c10d;

extern "C" __attribute__((visibility("default"))) const BackendModule* c10d_backend_module() {
  static constexpr BackendModule module{.name = "mpi",
                                        .version = mpi_version,
                                        .supports = mpi_supports,
                                        .create = make_mpi_backend,
                                        .needs_launcher = true};
  return &module;
}
