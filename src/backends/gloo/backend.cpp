// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/gloo/backend.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gloo/barrier.h>
#include <gloo/common/error.h>
#include <gloo/config.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <string>
#include <string_view>

#include "src/backends/common/failures.h"
#include "src/backends/common/gathered_reduction.h"
#include "src/backends/common/host_reduction.h"
#include "src/backends/common/single_rank.h"
#include "src/backends/gloo/context.h"
#include "src/backends/gloo/point_to_point.h"
#include "src/base/failure_text.h"
#include "src/base/sigpipe_guard.h"

namespace c10d { inline namespace v0 {
namespace {

const char* gloo_version() {
  static const std::string version =
      fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
  return version.c_str();
}

std::string file_of(void* function) {
  Dl_info found{};
  return dladdr(function, &found) != 0 ? found.dli_fname : "";
}

// PyTorch's own builds of libtorch_cpu.so have a Gloo inside. In a program that links one, the
// loader takes its functions for those of libgloo, and objects of one Gloo would go to the other.
const char* why_unavailable() {
  static const std::string why = [] {
    const std::string gloo = file_of(reinterpret_cast<void*>(&gloo::barrier));
    const bool is_linked_in = gloo == file_of(reinterpret_cast<void*>(&gloo_version));
    if (is_linked_in || gloo.rfind("/libgloo") != std::string::npos) return std::string();
    return fmt::format(
        "this program has another Gloo, in {}, which takes the place of libgloo: "
        "use native",
        gloo);
  }();
  return why.c_str();
}

constexpr std::size_t kMaxPendingCollectives = 4096;
constexpr std::size_t kMaxPendingMessages = 256;
constexpr auto kPatience = std::chrono::milliseconds(300);  // for evidence of a peer's death
// For another op of this rank that passed its deadline, and is about to report that.
constexpr std::chrono::seconds kPatienceWithOwn{5};
// What Gloo then says to every op of the rank.
constexpr std::string_view kAnotherOpIsLate = "Application timeout";

Support refused(std::string_view why) {
  return {.ok = false, .reason = std::string(why), .composed = {}};
}
Support composed(const char* how) { return {.ok = true, .reason = {}, .composed = how}; }

Work refused_to_self(int rank) {
  return Work::failed({.code = Code::unsupported,
                       .message = "gloo has no connection of a rank to itself",
                       .rank = rank});
}

}  // namespace

Support gloo_supports(const Query& query) {
  if (query.device != DeviceType::cpu) return refused("gloo works on CPU memory only");
  if (query.to_self) return refused("gloo has no connection of a rank to itself");
  if (query.op == OpKind::gather_v || query.op == OpKind::scatter_v) return composed("send + recv");
  if (!is_reduction(query.op)) return {};
  if (const auto why = why_not_on_host(query.op, query.reduce_op, query.dtype); !why.empty())
    return refused(why);
  if (query.op == OpKind::reduce_scatter || query.op == OpKind::reduce_scatter_v)
    return composed("all_to_all + local reduce");
  if (query.op == OpKind::scan || query.op == OpKind::exscan)
    return composed("all_to_all + local reduce + all_to_all");
  if (!collects_first(query.dtype, query.reduce_op)) return {};
  return composed(query.op == OpKind::reduce ? "all_to_all + local reduce + gather"
                                             : "all_to_all + local reduce + all_gather");
}

GlooBackend::GlooBackend(BackendContext context, std::shared_ptr<gloo::transport::Device> device)
    : context_(std::move(context)),
      device_(std::move(device)),
      sent_(static_cast<std::size_t>(context_.size)),
      collectives_(std::make_unique<ThreadPool>(1, kMaxPendingCollectives)),
      messages_(std::make_unique<ThreadPool>(kMaxPendingMessages, kMaxPendingMessages)) {
  if (context_.size == 1) return;
  if (!device_) device_ = make_gloo_device(context_);
  gloo_ = connect_ranks(context_, device_, std::chrono::steady_clock::now() + context_.timeout);
}

GlooBackend::~GlooBackend() {
  if (!collectives_->idle(Deadline::min()) || !messages_->idle(Deadline::min()))
    close_connections();
  collectives_.reset();
  messages_.reset();
  if (closer_.joinable()) closer_.join();
  const WriteSignalsBlock block;
  gloo_.reset();
  device_.reset();
}

// An exception of Gloo becomes the failure of the group. Its text may say no more than that a
// connection closed, so the control plane looks for evidence of the cause first.
template <class F>
GlooBackend::FailurePtr GlooBackend::guarded(const Call& call, F&& body) try {
  Failure failure;
  Duration patience = kPatience;
  try {
    const WriteSignalsBlock block;
    body();
    return nullptr;
  } catch (const gloo::IoException& error) {
    failure = lost_connection(call, error.what());
    if (failure.message.find(kAnotherOpIsLate) != std::string::npos) patience = kPatienceWithOwn;
  } catch (const std::exception& error) {
    failure = failure_from_exception(error, "gloo");
    failure.rank = context_.rank;
  }
  close_connections();  // the connections cannot be used any more, and other waits on them must end
  if (FailurePtr known = context_.control->failure()) return known;
  if (std::chrono::steady_clock::now() >= call.deadline) return fail_late(call, "running on gloo");
  failure.group = context_.group;
  failure.op = to_string(kind_of(call.op));
  failure.sequence = call.sequence;
  return context_.control->resolve_cause(std::move(failure), patience);
} catch (const std::exception& error) {
  return context_.control->fail(failure_from_exception(error, "gloo"));
}

// Gloo names an address only. The rank is known if the call is a send or a recv.
Failure GlooBackend::lost_connection(const Call& call, const char* what) const {
  const int peer = std::visit(
      []<class T>(const T& op) {
        if constexpr (requires { op.peer; }) return op.peer;
        return -1;
      },
      call.op);
  Failure failure{.code = Code::link_lost, .message = fmt::format("gloo: {}", what)};
  if (peer < 0) return failure;
  return caused_by(context_.members[static_cast<std::size_t>(peer)], std::move(failure));
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
    if (!gloo_) return std::visit([](const auto& op) { run_alone(op); }, call.op);
    const CollectiveCall state{gloo_->until(call.deadline),
                               static_cast<std::uint32_t>(call.sequence), call.deadline, scratch_};
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

template <class F>
Work GlooBackend::start(ThreadPool& threads, std::size_t limit, const Call& call, F body) {
  const WorkSource source;
  if (threads.add(
          [source, body = std::move(body), owned = std::make_shared<OwnedCall>(call)]() mutable {
            Received received;
            const FailurePtr failure = body(owned->call(), received);
            failure ? source.fail(*failure) : source.complete(received);
          }))
    return source.work();
  return Work::failed(*context_.control->fail(no_thread_for(context_, call, limit, "gloo")));
}

Work GlooBackend::launch_collective(const Call& call) {
  if (!call.async) {
    if (!collectives_->idle(call.deadline)) fail_late(call, "waiting for earlier async ops");
    // Also after a timeout: other ranks may be in a call that the funnel has announced.
    const FailurePtr failure = run_collective(call);
    return failure ? Work::failed(*failure) : Work();
  }
  return start(*collectives_, kMaxPendingCollectives, call,
               [this](const Call& later, Received&) { return run_collective(later); });
}

Work GlooBackend::launch_send(const Call& call, const Send& op) {
  if (op.peer == context_.rank) return refused_to_self(op.peer);
  std::shared_ptr<SendMessage> message;
  FailurePtr failure = guarded(call, [&] {
    message = std::make_shared<SendMessage>(*gloo_, op, sent_[op.peer]++);
    if (!call.async) message->finish(call.deadline);
  });
  if (failure) return Work::failed(*failure);
  if (!call.async) return {};
  return start(*messages_, kMaxPendingMessages, call,
               [this, message = std::move(message)](const Call& later, Received&) mutable {
                 FailurePtr late = guarded(later, [&] { message->finish(later.deadline); });
                 message.reset();  // Gloo reads the caller's memory until then
                 return late;
               });
}

Work GlooBackend::launch_recv(const Call& call, const Recv& op) {
  if (op.peer == context_.rank || !gloo_)  // alone there is no "any source" either
    return refused_to_self(context_.rank);
  std::shared_ptr<RecvMessage> message;
  if (const FailurePtr failure =
          guarded(call, [&] { message = std::make_shared<RecvMessage>(*gloo_, op); }))
    return Work::failed(*failure);
  const auto finish = [this, message](const Call& later, Received& received) {
    RecvMessage::Result result;
    FailurePtr failure = guarded(later, [&] { result = message->finish(later.deadline); });
    received = result.received;
    if (failure || result.mismatch.empty()) return failure;
    failure = context_.control->fail(
        failure_in(context_, later, Code::mismatch, result.mismatch, received.source));
    close_connections();  // the sender waits for this rank to receive the message
    return failure;
  };
  if (!call.async) {
    Received received;
    const FailurePtr failure = finish(call, received);
    return failure ? Work::failed(*failure) : Work::received(received);
  }
  return start(*messages_, kMaxPendingMessages, call, finish);
}

std::unique_ptr<Backend> GlooBackend::new_group(BackendContext context, const std::vector<int>&) {
  return std::make_unique<GlooBackend>(std::move(context), device_);
}

// A wait that times out makes Gloo close every connection of the context, and the peers notice.
// Gloo takes some 10 ms per connection, so nobody waits for that.
void GlooBackend::close_connections() noexcept {
  if (!gloo_ || closed_.exchange(true)) return;
  const auto close = [gloo = gloo_] {
    const WriteSignalsBlock block;
    try {
      std::byte nothing{};
      const auto buffer = gloo->createUnboundBuffer(&nothing, 1);
      buffer->waitRecv(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
    }
    gloo->revoke();
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
  if (!gloo_) return fmt::format("gloo {}, alone", gloo_version());
  return fmt::format("gloo {}, {}", gloo_version(), device_->str());
}

}}  // namespace c10d::v0

using namespace c10d;

extern "C" __attribute__((visibility("default"))) const BackendModule* c10d_backend_module() {
  static constexpr BackendModule module{
      .name = "gloo",
      .version = gloo_version,
      .supports = gloo_supports,
      .create = [](BackendContext context) -> std::unique_ptr<Backend> {
        return std::make_unique<GlooBackend>(std::move(context), nullptr);
      },
      .why_unavailable = why_unavailable};
  return &module;
}
