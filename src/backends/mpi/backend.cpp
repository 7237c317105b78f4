// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "src/backends/common/failures.h"
#include "src/backends/common/gathered_reduction.h"
#include "src/backends/common/host_reduction.h"
#include "src/backends/mpi/mpi_types.h"
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
  if (const auto why = why_not_on_host(query.op, query.reduce_op, query.dtype); !why.empty())
    return {.ok = false, .reason = std::string(why), .composed = {}};
  if (collects_first(query.dtype, query.reduce_op)) {
    if (query.op == OpKind::all_reduce) return composed("send + recv + local reduce + all_gather");
    if (query.op == OpKind::reduce) return composed("send + recv + local reduce + gather");
    if (query.op == OpKind::scan || query.op == OpKind::exscan)
      return composed("send + recv + local reduce + send + recv");
    return composed("send + recv + local reduce");
  }
  if (query.reduce_op == ReduceOp::avg) return composed("sum, then a local division");
  if (query.reduce_op == ReduceOp::premul_sum) return composed("a local product, then sum");
  return {};
}

MpiBackend::MpiBackend(BackendContext context, Communicators comms)
    : context_(std::move(context)),
      comms_(std::move(comms)),
      sent_(static_cast<std::size_t>(context_.size)),
      transfers_(std::make_shared<Transfers>(context_)),
      collectives_(std::make_unique<Collectives>(context_, comms_, transfers_)) {}

// If the group did not end in order, its communicators are not freed: that can wait for peers.
MpiBackend::~MpiBackend() {
  give_up(std::move(collectives_));
  transfers_->give_up_all();
}

Work MpiBackend::launch(const Call& call) {
  if (const auto* send = std::get_if<Send>(&call.op))
    return launch_message(call, send->tag, *send, sent_[static_cast<std::size_t>(send->peer)]++);
  const auto* recv = std::get_if<Recv>(&call.op);
  if (recv == nullptr) return collectives_->launch(call);
  const auto probed = find_probed(recv->peer, recv->tag);
  if (probed == probed_.end()) return launch_message(call, recv->tag, *recv);
  ProbedMessage message = std::move(*probed);
  probed_.erase(probed);
  return launch_message(call, recv->tag, *recv, std::move(message));
}

std::list<ProbedMessage>::iterator MpiBackend::find_probed(int peer, std::uint32_t tag) {
  return std::find_if(probed_.begin(), probed_.end(),
                      [=](const ProbedMessage& message) { return message.matches(peer, tag); });
}

std::optional<Received> MpiBackend::probe(int peer, std::uint32_t tag) {
  if (const auto failure = refusal(tag)) throw_failure(*failure);
  auto probed = find_probed(peer, tag);
  if (probed == probed_.end()) {
    auto message = ProbedMessage::take(comms_, peer, tag);
    if (!message) return std::nullopt;
    probed = probed_.insert(probed_.end(), *std::move(message));
  }
  return probed->received();
}

std::optional<Failure> MpiBackend::refusal(std::uint32_t tag) const {
  std::string message;
  if (comms_.headers == MPI_COMM_NULL)
    message = "mpi: a group of one rank has no peer";
  else if (tag > static_cast<std::uint32_t>(mpi_tag_limit()))
    message = fmt::format("this MPI supports tags up to {} only", mpi_tag_limit());
  if (message.empty()) return std::nullopt;
  return Failure{.code = Code::unsupported, .message = std::move(message), .rank = context_.rank};
}

template <class... Args>
Work MpiBackend::launch_message(const Call& call, std::uint32_t tag, Args&&... args) {
  if (const auto failure = refusal(tag)) return Work::failed(*failure);
  try {
    auto message = std::make_unique<Message>(comms_, std::forward<Args>(args)...);
    if (call.async) return transfers_->finish_later(call, std::move(message));
    const FailurePtr failure = transfers_->finish(call, message);
    return failure ? Work::failed(*failure) : Work::received(message->received());
  } catch (const std::exception& error) {
    return Work::failed(*transfers_->library_error(call, error.what()));
  }
}

namespace {

Failure late(const BackendContext& context) {
  const std::vector<int> idle = not_running(context.members);
  Failure failure = failure_in(
      context, Code::timed_out,
      fmt::format("rank {} timed out waiting for the others while MPI started "
                  "or made the communicators of group \"{}\"; {}",
                  context.rank, context.group, about_not_running(context.members, idle)));
  if (idle.empty()) return failure;
  return caused_by(context.members[static_cast<std::size_t>(idle.front())], std::move(failure));
}

// Tells apart groups that their members make at the same time.
int tag_of(const BackendContext& context) {
  return static_cast<int>(std::hash<std::string>()(context.group) % 32768);
}

// Makes the backend of a group with the communicators that `make(look)` returns. Either all ranks
// make the MPI calls there or none does.
template <class Make>
std::unique_ptr<Backend> make_together(BackendContext context, const Make& make) {
  const Deadline deadline = std::chrono::steady_clock::now() + context.timeout;
  if (const auto failure = context.control->barrier(deadline)) throw_failure(*failure);
  const auto look = [&] {
    if (const auto failure = context.control->failure()) throw_failure(*failure);
    if (std::chrono::steady_clock::now() >= deadline) throw_failure(late(context));
  };
  const MpiHold hold;  // a rank that exits meanwhile must not wait in MPI_Finalize
  try {
    Communicators comms = make(look);
    return std::make_unique<MpiBackend>(std::move(context), std::move(comms));
  } catch (const DistError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw_failure(failure_in(context, Code::backend_error,
                             fmt::format("MPI could not make a group: {}", error.what()),
                             context.rank));
  }
}

}  // namespace

std::unique_ptr<Backend> MpiBackend::new_group(BackendContext context,
                                               const std::vector<int>& parent_ranks) {
  if (context.size == 1) return std::make_unique<MpiBackend>(std::move(context), Communicators());
  const int tag = tag_of(context);
  return make_together(std::move(context), [&](const Communicators::Look& look) {
    return Communicators::subset(comms_.collectives, parent_ranks, tag, look);
  });
}

void MpiBackend::shutdown(Deadline deadline) {
  if (context_.control->broken()) deadline = std::min(deadline, Deadline::clock::now() + kGrace);
  if (!hold_ || !collectives_->idle(deadline) || !transfers_->finish_all(deadline)) return;
  if (context_.size > 1 && !context_.control->broken()) {
    const auto turn = mpi_turn();
    comms_.free_communicators();
  }
  hold_.reset();
}

std::string MpiBackend::description() const {
  return fmt::format("{}, {}", mpi_version(),
                     mpi_is_concurrent() ? "MPI_THREAD_MULTIPLE" : "MPI_THREAD_SERIALIZED");
}

namespace {

constexpr const char* kWorldRank = "mpi/rank/";  // keys of the store

// The ranks of the group in MPI_COMM_WORLD, which every rank has told before. Empty: they are those
// of the group, for c10d starts MPI.
std::vector<int> world_ranks(const BackendContext& context) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < context.size; ++rank) keys.push_back(kWorldRank + std::to_string(rank));
  std::vector<int> ranks;
  for (const std::string& rank : context.store->multi_get(keys)) {
    if (rank.empty()) return {};
    ranks.push_back(std::stoi(rank));
  }
  return ranks;
}

std::unique_ptr<Backend> make_mpi_backend(BackendContext context) {
  if (context.size == 1) return std::make_unique<MpiBackend>(std::move(context), Communicators());
  check_startable(context);
  const std::optional<int> own = rank_in_world();
  context.store->set(kWorldRank + std::to_string(context.rank), own ? std::to_string(*own) : "");
  // The first thing that make_together() does is a barrier: then all ranks have told theirs.
  return make_together(context, [&](const Communicators::Look& look) {
    start_mpi(context, look);
    const std::vector<int> ranks = world_ranks(context);
    if (is_whole_world(context, ranks)) return Communicators::duplicate(MPI_COMM_WORLD, look);
    return Communicators::subset(MPI_COMM_WORLD, ranks, tag_of(context), look);
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
