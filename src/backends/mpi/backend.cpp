// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/backend.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>

#include "kernels/alone.h"
#include "kernels/collected.h"
#include "src/backends/mpi/direct.h"
#include "src/backends/mpi/runtime.h"
#include "src/backends/mpi/types.h"

namespace c10d::inline v0 {
namespace {

constexpr std::size_t kMaxPendingCollectives = 4096;

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
      channel_(std::move(channel)),
      sent_(static_cast<std::size_t>(context_.size)),
      transfers_(std::make_shared<Transfers>(context_)),
      collectives_(std::make_unique<Tasks>(1, kMaxPendingCollectives)) {
  hold_mpi();
}

// Communicators of a group that did not end in order stay: freeing one can wait for peers. MPI is
// not finalised then either.
MpiBackend::~MpiBackend() = default;

template <class T>
FailurePtr MpiBackend::run_op(const Call& call, const T& op) {
  if constexpr (!std::is_same_v<T, AllToAllV>) {
    if (mpi_is_concurrent() && is_direct(channel_, op)) {
      check_mpi(start(channel_, op, nullptr));
      channel_.free_types();
      return nullptr;
    }
  }
  FailurePtr failure;
  auto plan = std::make_unique<Plan>(channel_);
  try {
    plan->add(op);
    while (!plan->advance() && !transfers_->is_over(call, failure)) transfers_->pause();
  } catch (const std::exception& error) {
    failure = transfers_->library_error(call, error.what());
  }
  if (failure) give_up(std::move(plan));
  channel_.free_types();
  return failure;
}

FailurePtr MpiBackend::run(const Call& call) {
  if (FailurePtr failure = context_.control->agree(call, Control::Waiting::spin)) return failure;
  try {
    return std::visit(
        [&]<class T>(const T& op) -> FailurePtr {
          if constexpr (std::is_same_v<T, Send> || std::is_same_v<T, Recv>) {
            return nullptr;
          } else if (channel_.size > 1) {
            return run_op(call, op);
          } else {
            run_alone(op);
            return nullptr;
          }
        },
        call.op);
  } catch (const std::exception& error) {
    return transfers_->library_error(call, error.what());
  }
}

Work MpiBackend::launch(const Call& call) {
  if (const auto* send = std::get_if<Send>(&call.op))
    return launch_message(call, *send, sent_[static_cast<std::size_t>(send->peer)]++);
  if (const auto* recv = std::get_if<Recv>(&call.op)) return launch_message(call, *recv, 0);
  if (call.async) return launch_async(call);
  if (!collectives_->idle(call.deadline))
    return Work::failed(*context_.control->fail(
        context_.control->timed_out(call, "waiting for earlier async ops")));
  const FailurePtr failure = run(call);
  return failure ? Work::failed(*failure) : Work();
}

Work MpiBackend::launch_async(const Call& call) {
  const WorkSource source;
  const bool added = collectives_->add([this, source, owned = std::make_shared<OwnedCall>(call)] {
    const FailurePtr failure = run(owned->call());
    failure ? source.fail(*failure) : source.complete();
  });
  if (added) return source.work();
  return Work::failed(*context_.control->fail(
      {.code = Code::out_of_resources,
       .message = fmt::format("more than {} async ops of one group are pending: wait() for some",
                              kMaxPendingCollectives),
       .rank = context_.rank,
       .group = context_.group}));
}

template <class T>
Work MpiBackend::launch_message(const Call& call, const T& op, std::uint32_t number) {
  if (channel_.headers == MPI_COMM_NULL)
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
      message = std::make_unique<Message>(channel_, op, number);
    else
      message = std::make_unique<Message>(channel_, op);
    if (call.async) return transfers_->finish_later(call, std::move(message));
    const FailurePtr failure = transfers_->finish(call, message);
    return failure ? Work::failed(*failure) : Work::received_from(message->source());
  } catch (const std::exception& error) {
    return Work::failed(*transfers_->library_error(call, error.what()));
  }
}

namespace {

// Makes the backend of a group out of the channel that `make(look)` returns. MPI calls that block
// may be made there: either all ranks come to them or none does.
template <class Make>
std::unique_ptr<Backend> make_together(BackendContext context, const Make& make) {
  const Deadline deadline = std::chrono::steady_clock::now() + context.timeout;
  if (const auto failure = context.control->barrier(deadline)) throw_failure(*failure);
  const auto look = [&] {
    if (const auto failure = context.control->failure()) throw_failure(*failure);
    if (std::chrono::steady_clock::now() >= deadline)
      throw_failure({.code = Code::timed_out,
                     .message = fmt::format("rank {} waited in vain for the others while MPI made "
                                            "the communicators of group \"{}\"",
                                            context.rank, context.group),
                     .group = context.group});
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
    return Channel::subset(channel_.collectives, parent_ranks, tag, look);
  });
}

void MpiBackend::shutdown(Deadline deadline) {
  if (!open_ || !collectives_->idle(deadline) || !transfers_->finish_all(deadline)) return;
  open_ = false;
  if (channel_.size > 1 && !context_.control->broken()) {
    const auto turn = mpi_turn();
    channel_.free_communicators();
  }
  release_mpi();
}

std::string MpiBackend::description() const {
  return fmt::format("{}, {}", mpi_version(),
                     mpi_is_concurrent() ? "MPI_THREAD_MULTIPLE" : "MPI_THREAD_SERIALIZED");
}

namespace {

std::unique_ptr<Backend> make_mpi_backend(BackendContext context) {
  if (context.size == 1) return std::make_unique<MpiBackend>(std::move(context), Channel());
  check_startable(context);
  const BackendContext& starting = context;
  return make_together(context, [&](const Channel::Look& look) {
    start_mpi(starting);
    return Channel::duplicate(MPI_COMM_WORLD, look);
  });
}

}  // namespace
}  // namespace c10d::inline v0

using namespace c10d;

extern "C" __attribute__((visibility("default"))) const BackendModule* c10d_backend_module() {
  static constexpr BackendModule module{
      .name = "mpi", .version = mpi_version, .supports = mpi_supports, .create = make_mpi_backend};
  return &module;
}
