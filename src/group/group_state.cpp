// SPDX-License-Identifier: BSD-3-Clause
#include "src/group/group_state.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <thread>

#include "c10d/process_group.h"
#include "src/base/failure_text.h"
#include "src/base/log.h"
#include "src/base/timeouts.h"
#include "src/group/bootstrap.h"
#include "src/group/check_arguments.h"
#include "src/group/work_shared.h"
#include "src/recorder/flight_recorder.h"

namespace c10d { inline namespace v0 {
namespace {

// Until the ops that this rank has enqueued are over, the group is broken, or the deadline has
// passed. False if the group is broken.
bool wait_for_gpu(const ControlPlane& control, Deadline deadline) {
  constexpr int kYields = 1000;  // before it sleeps: about a millisecond
  for (int turn = 0; control.ops_on_gpu() != 0 && !control.broken(); ++turn) {
    if (turn < kYields) {
      std::this_thread::yield();
      continue;
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return !control.broken();
}

}  // namespace

Exclusive::Exclusive(detail::GroupState& state) : state_(state) {
  if (state.busy.exchange(true, std::memory_order_acquire))
    throw_failure({.code = Code::concurrent_use,
                   .message = "another thread is inside a call of this group; give each thread a "
                              "group of its own (new_group) or take turns",
                   .rank = state.context.rank,
                   .group = state.context.group});
}

detail::GroupState::GroupState(BackendContext context_, std::string backend_name_,
                               std::shared_ptr<ControlPlane> control_,
                               std::unique_ptr<Backend> backend_)
    : context(std::move(context_)),
      // No key of the library begins with a slash: group names have none.
      user_store(make_prefix_store("/user", context.store)),
      backend_name(std::move(backend_name_)),
      control(std::move(control_)),
      backend(std::move(backend_)),
      gpu(backend->device()),
      own(control->own_block()),
      agrees_first(backend->agrees_first()),
      process(process_generation()),
      watch(std::make_shared<FailureWatch>(context.group)),
      timeout(context.timeout.count()) {
  control->on_unobserved([to = watch](const Failure& failure) { to->note_unobserved(failure); });
}

detail::GroupState::~GroupState() = default;

detail::GroupState& require_state(const std::shared_ptr<detail::GroupState>& state) {
  if (!state)
    throw InvalidArgument(
        "this ProcessGroup holds no group: it was moved from, never made, or split() was given no "
        "color");
  return *state;
}

void detail::GroupState::check_not_forked() const {
  if (process != process_generation())
    throw_failure({.code = Code::forked_child,
                   .message = "this group belongs to the parent process; a forked child makes its "
                              "own, or starts with exec",
                   .group = context.group});
}

void detail::GroupState::check_alive() const {
  check_not_forked();
  if (closed.load(std::memory_order_relaxed))
    throw_failure({.code = Code::destroyed,
                   .message = "the group was shut down on this rank",
                   .rank = context.rank,
                   .group = context.group});
}

void detail::GroupState::throw_unsupported(const Signature& signature,
                                           const Support& support) const {
  throw_failure({.code = Code::unsupported,
                 .message = fmt::format("{} cannot do {}: {}", backend_name, describe(signature),
                                        support.reason),
                 .rank = context.rank,
                 .group = context.group,
                 .op = std::string(to_string(signature.kind))});
}

void detail::GroupState::check_supported(const Signature& signature) {
  std::uint8_t& known =
      supports[static_cast<std::size_t>(signature.device)][static_cast<std::size_t>(signature.kind)]
              [static_cast<std::size_t>(signature.dtype)][signature.reduce_op];
  if (known == 1) return;
  const Support support = backend->supports({.op = signature.kind,
                                             .dtype = signature.dtype,
                                             .reduce_op = signature.reduce_op,
                                             .device = signature.device});
  known = support ? 1 : 2;
  if (!support) throw_unsupported(signature, support);
}

// What a backend may refuse although it can do the op.
void detail::GroupState::check_special(const Checked& call) const {
  const Signature& signature = call.signature;
  const bool is_message = is_point_to_point(signature.kind);
  const bool is_special = signature.root == kAnySource || signature.root == context.rank;
  if (!(is_message && is_special) && !call.captured) return;
  const Support support =
      backend->supports({.op = signature.kind,
                         .dtype = signature.dtype,
                         .reduce_op = signature.reduce_op,
                         .device = signature.device,
                         .any_source = is_message && signature.root == kAnySource,
                         .to_self = is_message && signature.root == context.rank,
                         .captured = call.captured});
  if (!support) throw_unsupported(signature, support);
}

detail::GroupState::Checked detail::GroupState::check(const Op& op, const CallOptions& options) {
  if (options.timeout && *options.timeout <= Duration::zero())
    throw InvalidArgument("CallOptions::timeout must be positive; leave it out for the group's");
  Signature signature = signature_of(op, context.size);
  const bool on_gpu = gpu.type == DeviceType::cuda;
  if (signature.kind == OpKind::barrier && options.stream != nullptr) signature.device = gpu.type;
  if (options.stream != nullptr && signature.device == DeviceType::cpu)
    throw InvalidArgument("CallOptions::stream orders ops on CUDA memory; here is none");
  check_arguments(op, context.rank, context.size);
  check_supported(signature);
  if (on_gpu && signature.device == DeviceType::cpu) check_host(op);
  Checked call{.signature = signature};
  if (on_gpu && signature.device == DeviceType::cuda) {
    call.captured = check_gpu(op, options.stream, gpu, context.rank);
    check_special(call);
  }
  return call;
}

Work detail::GroupState::submit(const Op& op, const CallOptions& options, Mode mode) {
  check_alive();
  Exclusive exclusive(*this);
  return submit_inside(op, options, mode);
}

Work detail::GroupState::submit_inside(const Op& op, const CallOptions& options, Mode mode) {
  const Checked call = check(op, options);
  if (const auto* send = std::get_if<Send>(&op)) control->check_receiver(send->peer);
  if (control->broken()) {
    const auto failure = control->failure();
    if (mode == Mode::async) return failed(*failure);
    watch->observe();
    throw_failure(*failure);
  }
  return run(op, call, options, mode == Mode::async);
}

Work detail::GroupState::failed(const Failure& failure) const {
  Work work = Work::failed(failure);
  WorkShared::set_watch(work, watch);
  return work;
}

Work detail::GroupState::run(const Op& op, const Checked& checked, const CallOptions& options,
                             bool async) {
  const Signature& signature = checked.signature;
  const bool collective = !is_point_to_point(signature.kind);
  const std::uint64_t sequence =
      collective ? collectives.load(std::memory_order_relaxed) + 1 : ++messages;
  if (collective) collectives.store(sequence, std::memory_order_relaxed);
  const std::uint64_t hash = hash_of(signature);
  const bool on_gpu = signature.device == DeviceType::cuda;
  // Async ops before this one announce themselves when their turn comes. Where one has failed that
  // is over, the group is broken by now.
  if (agrees_first && collective && !async && gpu.type == DeviceType::cpu &&
      own.pending.load(std::memory_order_acquire) == 0)
    control->announce_ahead(op, sequence, signature, hash);
  const std::int64_t now = steady_ns();
  const Duration limit =
      clamp_timeout(options.timeout.value_or(Duration(timeout.load(std::memory_order_relaxed))));
  const Deadline deadline(Duration(now) + limit);
  CallDetails details;
  if (options.ready_at || signature.counts != 0)  // else there are none
    details = details_of(op, context.rank, options.ready_at);
  if (!collective) details.message = next_message(signature);
  const std::uint64_t record =
      start_record(own, sequence, signature, now, deadline.time_since_epoch().count(), details);
  if (collective) own.submitted.store(sequence, std::memory_order_relaxed);
  const Call call{.op = op,
                  .sequence = sequence,
                  .signature = hash,
                  .deadline = deadline,
                  .async = async,
                  .record = record,
                  .device = on_gpu ? gpu : Device{},
                  .stream = options.stream,
                  .captured = checked.captured};
  WorkShared::OnComplete on_complete;
  std::function<void()> on_released;
  const bool outlasts_call = async || on_gpu;
  if (outlasts_call) own.pending.fetch_add(1, std::memory_order_relaxed);
  if (on_gpu) control->begin_on_gpu();
  Work work = [&] {
    try {
      if (signature.kind == OpKind::barrier && !on_gpu && !async && gpu.type == DeviceType::cuda)
        if (!wait_for_gpu(*control, deadline)) return Work::failed(*control->failure());
      if (async) {  // here: what throws later leaves the caller's memory to an op that runs
        on_complete = [this, record, sequence, kind = signature.kind](const Failure* failure) {
          return control->end_op(kind, sequence, record, failure);
        };
        on_released = [this, on_gpu] {
          if (on_gpu) control->end_on_gpu();
          own.pending.fetch_sub(1, std::memory_order_release);
        };
      }
      if (collective && gpu.type == DeviceType::cuda)
        if (const auto failure = control->announce_in_order(call, signature))
          return Work::failed(*failure);
      return backend->launch(call);
    } catch (const std::exception& error) {
      return Work::failed(failure_from_exception(error, backend_name));
    }
  }();
  if (async && WorkShared::set_hooks(work, watch, std::move(on_complete), std::move(on_released)))
    return work;
  const Failure* const failed_with = WorkShared::failure_of(work);
  if (on_gpu && !async && failed_with == nullptr) return work;  // the backend says when it is over
  const auto failure = control->end_op(signature.kind, sequence, record, failed_with);
  if (on_gpu) control->end_on_gpu();
  if (outlasts_call) own.pending.fetch_sub(1, std::memory_order_release);
  if (!failure) return work;
  if (async) return failed(*failure);
  watch->observe();
  throw_failure(*failure);
}

std::uint64_t detail::GroupState::next_message(const Signature& signature) {
  if (signature.root == kAnySource) return 0;
  const auto device = static_cast<std::size_t>(signature.device);
  auto& numbers = signature.kind == OpKind::send ? sent[device] : received[device];
  numbers.resize(static_cast<std::size_t>(context.size));
  return ++numbers[static_cast<std::size_t>(signature.root)];
}

std::optional<Received> detail::GroupState::probe(int peer, std::uint32_t tag) {
  if (const auto failure = control->broken() ? control->failure() : nullptr) {
    watch->observe();
    throw_failure(*failure);
  }
  try {
    return backend->probe(peer, tag);
  } catch (const std::exception& error) {
    Failure failure = failure_from_exception(error, backend_name);
    if (!leaves_group_intact(failure.code)) failure = *control->fail(std::move(failure));
    throw_failure(failure);
  }
}

void detail::GroupState::abort(std::string_view why) noexcept {
  if (process != process_generation() || closed.load()) return;
  try {
    control->revoke({.code = Code::revoked,
                     .message = fmt::format("rank {}: {}", context.rank, why),
                     .rank = context.rank});
    backend->abort();
  } catch (const std::exception& error) {
    log(LogLevel::error, "abort of group \"{}\": {}", context.group, error.what());
  }
}

void detail::GroupState::abort_on(const std::stop_token& token) {
  stop_ = token;
  if (token.stop_possible())
    on_stop_.emplace(token, [this] { abort("a stop was requested (InitOptions::stop)"); });
}

bool detail::GroupState::shutdown(Duration limit) {
  if (closed.exchange(true)) return own.pending.load(std::memory_order_acquire) == 0;
  using std::chrono::steady_clock;
  const auto drained = [this](Deadline end) {
    while (own.pending.load(std::memory_order_acquire) != 0) {
      if (steady_clock::now() >= end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  };
  const Deadline deadline = steady_clock::now() + clamp_timeout(limit);
  bool quiet = drained(deadline);
  if (!quiet) {
    control->fail({.code = Code::destroyed,
                   .message = fmt::format("rank {} shut the group down with {} ops pending",
                                          context.rank, own.pending.load()),
                   .rank = context.rank});
    backend->abort();
    quiet = drained(steady_clock::now() + std::chrono::seconds(1));
  }
  control->leave();
  std::exception_ptr problem;
  try {
    if (quiet) backend->shutdown(deadline);
  } catch (...) {  // the monitor must not call a backend that is about to go
    problem = std::current_exception();
  }
  control->keep_record_if_broken();
  unwatch(*control);
  watch->end();
  if (release_claim) release_claim();
  if (problem) std::rethrow_exception(problem);
  return quiet;
}

}}  // namespace c10d::v0
