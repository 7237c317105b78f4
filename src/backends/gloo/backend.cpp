// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/gloo/backend.h"

#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/config.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <system_error>

#include "src/backends/common/gathered_reduction.h"
#include "src/backends/common/single_rank.h"
#include "src/backends/gloo/context.h"
#include "src/backends/gloo/point_to_point.h"
#include "src/base/failure_text.h"
#include "src/base/sigpipe_guard.h"

namespace c10d { inline namespace v0 {
namespace {

#define C10D_GLOO_TEXT(x) #x
#define C10D_GLOO_VERSION(a, b, c) C10D_GLOO_TEXT(a) "." C10D_GLOO_TEXT(b) "." C10D_GLOO_TEXT(c)
constexpr const char* kGlooVersion =
    C10D_GLOO_VERSION(GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
#undef C10D_GLOO_VERSION
#undef C10D_GLOO_TEXT

constexpr std::size_t kMaxPendingCollectives = 4096;
constexpr std::size_t kMaxPendingMessages = 256;
constexpr auto kPatience = std::chrono::milliseconds(300);  // for evidence of a peer's death

Failure too_many(const BackendContext& context, const Call& call, std::size_t limit) {
  return {.code = Code::out_of_resources,
          .message = fmt::format("no thread for another async op: {} of one group wait on gloo at "
                                 "most, wait() for some; or raise ulimit -u",
                                 limit),
          .rank = context.rank,
          .group = context.group,
          .op = std::string(to_string(kind_of(call.op))),
          .sequence = call.sequence};
}

}  // namespace

Support gloo_supports(const Query& query) {
  if (query.device != DeviceType::cpu)
    return {.ok = false, .reason = "gloo works on CPU memory only", .composed = {}};
  if (!is_reduction(query.op)) {
    if (query.op == OpKind::gather_v || query.op == OpKind::scatter_v)
      return {.ok = true, .reason = {}, .composed = "send + recv"};
    return {};
  }
  if (const auto why = why_unsupported(query.reduce_op, query.dtype); !why.empty())
    return {.ok = false, .reason = std::string(why), .composed = {}};
  if (query.op == OpKind::reduce_scatter || query.op == OpKind::reduce_scatter_v)
    return {.ok = true, .reason = {}, .composed = "all_to_all + local reduce"};
  if (collects_first(query.dtype, query.reduce_op))
    return {.ok = true,
            .reason = {},
            .composed = query.op == OpKind::reduce ? "all_to_all + local reduce + gather"
                                                   : "all_to_all + local reduce + all_gather"};
  return {};
}

GlooBackend::GlooBackend(BackendContext context, std::shared_ptr<gloo::transport::Device> device)
    : context_(std::move(context)),
      device_(std::move(device)),
      sent_(static_cast<std::size_t>(context_.size)),
      collectives_(std::make_unique<ThreadPool>(1, kMaxPendingCollectives)),
      messages_(std::make_unique<ThreadPool>(kMaxPendingMessages, kMaxPendingMessages)) {
  if (context_.size == 1) return;
  if (!device_) device_ = make_gloo_device(context_);
  mesh_ = connect_mesh(context_, device_, std::chrono::steady_clock::now() + context_.timeout);
}

GlooBackend::~GlooBackend() {
  if (!collectives_->idle(Deadline::min()) || !messages_->idle(Deadline::min()))
    close_connections();
  collectives_.reset();
  messages_.reset();
  if (closer_.joinable()) closer_.join();
  const WriteSignalsBlock block;
  mesh_.reset();
  device_.reset();
}

// What Gloo throws becomes the failure of the group. Its text may say no more than that a
// connection closed, so evidence of the cause goes first.
template <class F>
GlooBackend::FailurePtr GlooBackend::guarded(const Call& call, F&& body) try {
  Failure failure;
  try {
    const WriteSignalsBlock block;
    body();
    return nullptr;
  } catch (const gloo::IoException& error) {
    failure = lost_connection(call, error.what());
  } catch (const std::exception& error) {
    failure = failure_from_exception(error, "gloo");
    failure.rank = context_.rank;
  }
  close_connections();  // the mesh is of no use any more, and other waits on it must end
  if (FailurePtr known = context_.control->failure()) return known;
  if (std::chrono::steady_clock::now() >= call.deadline) return fail_late(call, "running on gloo");
  failure.group = context_.group;
  failure.op = to_string(kind_of(call.op));
  failure.sequence = call.sequence;
  return context_.control->resolve_cause(std::move(failure), kPatience);
} catch (const std::exception& error) {
  return context_.control->fail(failure_from_exception(error, "gloo"));
}

// Gloo names an address: which rank was there is known of a message only.
Failure GlooBackend::lost_connection(const Call& call, const char* what) const {
  const int peer = std::visit(
      []<class T>(const T& op) {
        if constexpr (requires { op.peer; }) return op.peer;
        return -1;
      },
      call.op);
  Failure failure{.code = Code::link_lost, .message = fmt::format("gloo: {}", what), .rank = peer};
  if (peer < 0) return failure;
  const Member& member = context_.members[static_cast<std::size_t>(peer)];
  failure.host = member.host;
  failure.pid = member.pid;
  return failure;
}

GlooBackend::FailurePtr GlooBackend::fail_late(const Call& call, std::string_view phase) {
  FailurePtr winner = context_.control->fail(context_.control->timed_out(call, phase));
  close_connections();
  return winner;
}

Work GlooBackend::launch(const Call& call) {
  if (const auto* send = std::get_if<Send>(&call.op)) return launch_send(call, *send);
  if (const auto* recv = std::get_if<Recv>(&call.op)) return launch_recv(call, *recv);
  return launch_collective(call);
}

GlooBackend::FailurePtr GlooBackend::run_collective(const Call& call) try {
  if (FailurePtr failure = context_.control->agree(call, Control::Waiting::sleep)) return failure;
  return guarded(call, [&] {
    if (!mesh_) return std::visit([](const auto& op) { run_alone(op); }, call.op);
    const Run state{mesh_->until(call.deadline), static_cast<std::uint32_t>(call.sequence),
                    call.deadline, scratch_};
    std::visit(
        [&]<class T>(const T& op) {
          if constexpr (!std::is_same_v<T, Send> && !std::is_same_v<T, Recv>) run(state, op);
        },
        call.op);
    scratch_.release();
  });
} catch (const std::exception& error) {
  return context_.control->fail(failure_from_exception(error, "gloo"));
}

Work GlooBackend::launch_collective(const Call& call) {
  if (!call.async) {
    if (!collectives_->idle(call.deadline)) fail_late(call, "waiting for earlier async ops");
    // Also then: the others may be in a call that the funnel has announced.
    const FailurePtr failure = run_collective(call);
    return failure ? Work::failed(*failure) : Work();
  }
  const WorkSource source;
  const bool added = collectives_->add([this, source, owned = std::make_shared<OwnedCall>(call)] {
    const FailurePtr failure = run_collective(owned->call());
    failure ? source.fail(*failure) : source.complete();
  });
  if (added) return source.work();
  return Work::failed(*context_.control->fail(too_many(context_, call, kMaxPendingCollectives)));
}

Work GlooBackend::launch_send(const Call& call, const Send& op) {
  if (op.peer == context_.rank)
    return Work::failed({.code = Code::unsupported,
                         .message = "gloo has no connection of a rank to itself",
                         .rank = op.peer});
  std::shared_ptr<SendMessage> message;
  FailurePtr failure = guarded(call, [&] {
    message = std::make_shared<SendMessage>(*mesh_, op, sent_[op.peer]++);
    if (!call.async) message->finish(call.deadline);
  });
  if (failure) return Work::failed(*failure);
  if (!call.async) return {};
  const WorkSource source;
  const bool added = messages_->add([this, source, message = std::move(message),
                                     owned = std::make_shared<OwnedCall>(call)]() mutable {
    const Call& later = owned->call();
    const FailurePtr late = guarded(later, [&] { message->finish(later.deadline); });
    message.reset();  // Gloo reads the caller's memory until then
    late ? source.fail(*late) : source.complete();
  });
  if (added) return source.work();
  return Work::failed(*context_.control->fail(too_many(context_, call, kMaxPendingMessages)));
}

Work GlooBackend::launch_recv(const Call& call, const Recv& op) {
  if (op.peer == context_.rank || !mesh_)  // alone there is no "any source" either
    return Work::failed({.code = Code::unsupported,
                         .message = "gloo has no connection of a rank to itself",
                         .rank = context_.rank});
  std::shared_ptr<RecvMessage> message;
  if (const FailurePtr failure =
          guarded(call, [&] { message = std::make_shared<RecvMessage>(*mesh_, op); }))
    return Work::failed(*failure);
  const auto finish = [this, message](const Call& later, int& source) {
    RecvMessage::Result result;
    FailurePtr failure = guarded(later, [&] { result = message->finish(later.deadline); });
    source = result.source;
    if (failure || result.mismatch.empty()) return failure;
    failure = context_.control->fail({.code = Code::mismatch,
                                      .message = result.mismatch,
                                      .rank = result.source,
                                      .group = context_.group,
                                      .op = "recv",
                                      .sequence = later.sequence});
    close_connections();  // the sender waits for this rank to take the message
    return failure;
  };
  int from = -1;
  if (!call.async) {
    const FailurePtr failure = finish(call, from);
    return failure ? Work::failed(*failure) : Work::received_from(from);
  }
  const WorkSource source;
  const bool added = messages_->add([source, finish, owned = std::make_shared<OwnedCall>(call)] {
    int sender = -1;
    const FailurePtr failure = finish(owned->call(), sender);
    failure ? source.fail(*failure) : source.complete(sender);
  });
  if (added) return source.work();
  return Work::failed(*context_.control->fail(too_many(context_, call, kMaxPendingMessages)));
}

std::unique_ptr<Backend> GlooBackend::new_group(BackendContext context, const std::vector<int>&) {
  return std::make_unique<GlooBackend>(std::move(context), device_);
}

// A wait that times out makes Gloo close every connection of the mesh, and the peers notice. Gloo
// takes some 10 ms per connection, so nobody waits for that.
void GlooBackend::close_connections() noexcept {
  if (!mesh_ || closed_.exchange(true)) return;
  const auto close = [mesh = mesh_] {
    const WriteSignalsBlock block;
    try {
      std::byte nothing{};
      const auto buffer = mesh->createUnboundBuffer(&nothing, 1);
      buffer->waitRecv(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
    }
    mesh->revoke();
  };
  try {
    closer_ = std::thread(close);
  } catch (const std::exception&) {
    close();
  }
}

void GlooBackend::abort() noexcept { close_connections(); }

void GlooBackend::shutdown(Deadline deadline) {
  if (!collectives_->idle(deadline) || !messages_->idle(deadline)) close_connections();
}

std::string GlooBackend::description() const {
  if (!mesh_) return fmt::format("gloo {}, alone", kGlooVersion);
  return fmt::format("gloo {}, {}", kGlooVersion, device_->str());
}

}}  // namespace c10d::v0

using namespace c10d;

extern "C" __attribute__((visibility("default"))) const BackendModule* c10d_backend_module() {
  static constexpr BackendModule module{
      .name = "gloo",
      .version = [] { return kGlooVersion; },
      .supports = gloo_supports,
      .create = [](BackendContext context) -> std::unique_ptr<Backend> {
        return std::make_unique<GlooBackend>(std::move(context), nullptr);
      }};
  return &module;
}
