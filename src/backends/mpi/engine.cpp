// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/engine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "src/backends/mpi/runtime.h"
#include "src/core/host.h"
#include "src/core/progress.h"

namespace c10d::inline v0 {
namespace {

constexpr std::size_t kMaxPending = 4096;

// MPI gives no memory back before an op is done, and the ops of a broken group may never be.
template <class T>
void give_up(std::unique_ptr<T> op) {
  static auto& mutex = *new std::mutex();
  static auto& kept = *new std::deque<std::unique_ptr<T>>();
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(op));
}

}  // namespace

Engine::Engine(const BackendContext& context, Channel& channel)
    : context_(context),
      channel_(channel),
      crowded_(std::count_if(context.members.begin(), context.members.end(),
                             [](const Member& member) { return member.same_host; }) >
               allowed_cpus()) {}

Engine::~Engine() {
  for (auto& collective : collectives_) {
    if (collective->plan && collective->plan->in_progress()) give_up(std::move(collective->plan));
    collective->source.fail({.code = Code::destroyed, .message = "the group was destroyed"});
  }
  for (auto& transfer : transfers_) {
    transfer->message->cancel();
    if (transfer->message->in_progress()) give_up(std::move(transfer->message));
    transfer->source.fail({.code = Code::destroyed, .message = "the group was destroyed"});
  }
}

Work Engine::add(const Call& call) {
  auto collective = std::make_unique<Collective>(call);
  const WorkSource source = collective->source;
  {
    const std::lock_guard lock(mutex_);
    if (collectives_.size() == kMaxPending) return Work::failed(*too_many(call));
    collectives_.push_back(std::move(collective));
    collectives_left_.store(collectives_.size(), std::memory_order_release);
  }
  watch(source);
  return source.work();
}

Work Engine::add(const Call& call, std::unique_ptr<Message> message) {
  auto transfer = std::make_unique<Transfer>(call, std::move(message));
  const WorkSource source = transfer->source;
  {
    const std::lock_guard lock(mutex_);
    if (transfers_.size() == kMaxPending) {
      give_up(std::move(transfer->message));
      return Work::failed(*too_many(call));
    }
    transfers_.push_back(std::move(transfer));
  }
  watch(source);
  return source.work();
}

void Engine::watch(const WorkSource& source) {
  source.set_progress([weak = weak_from_this()] {
    const auto engine = weak.lock();
    return engine && engine->poll();
  });
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(watched_, true)) return;
  }
  add_progress([weak = weak_from_this()] {
    const auto engine = weak.lock();
    if (!engine) return Poll::done;
    if (engine->poll()) return Poll::busy;
    return engine->in_use() ? Poll::idle : Poll::done;
  });
}

bool Engine::in_use() {
  const std::lock_guard lock(mutex_);
  watched_ = !collectives_.empty() || !transfers_.empty();
  return watched_;
}

bool Engine::poll() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  const bool moved = poll_collective();
  return poll_transfers() || moved;
}

bool Engine::is_over(const Call& call, FailurePtr& failure) {
  if (context_.control->broken()) {
    failure = context_.control->failure();
    return true;
  }
  if (std::chrono::steady_clock::now() < call.deadline) return false;
  failure = context_.control->fail(context_.control->timed_out(call, "running on MPI"));
  return true;
}

bool Engine::step(Collective& collective, FailurePtr& failure) {
  const Call& call = collective.owned.call();
  try {
    if (!collective.plan) {
      if (!std::exchange(collective.announced, true)) context_.control->announce(call);
      const auto agreement = context_.control->poll_agreement(call);
      if (agreement == Control::Agreement::failed) failure = context_.control->failure();
      if (agreement == Control::Agreement::pending) return is_over(call, failure);
      if (failure) return true;
      collective.plan = std::make_unique<Plan>(channel_);
      std::visit(
          [&]<class T>(const T& op) {
            if constexpr (!std::is_same_v<T, Send> && !std::is_same_v<T, Recv>)
              collective.plan->add(op);
          },
          call.op);
    }
    return collective.plan->advance() || is_over(call, failure);
  } catch (const std::exception& error) {
    failure = library_error(call, error.what());
    return true;
  }
}

bool Engine::poll_collective() {
  if (collectives_.empty()) return false;
  FailurePtr failure;
  if (!step(*collectives_.front(), failure)) return false;
  const std::unique_ptr<Collective> done = std::move(collectives_.front());
  collectives_.pop_front();
  channel_.free_types();
  if (failure && done->plan && done->plan->in_progress()) give_up(std::move(done->plan));
  collectives_left_.store(collectives_.size(), std::memory_order_release);
  failure ? done->source.fail(*failure) : done->source.complete();
  return true;
}

bool Engine::poll_transfers() {
  bool moved = false;
  for (auto place = transfers_.begin(); place != transfers_.end();) {
    Transfer& transfer = **place;
    FailurePtr failure;
    bool over = false;
    try {
      over = transfer.message->advance();
      failure = over ? failure_of(transfer.owned.call(), *transfer.message) : nullptr;
      if (!over) over = is_over(transfer.owned.call(), failure);
    } catch (const std::exception& error) {
      failure = library_error(transfer.owned.call(), error.what());
      over = true;
    }
    if (!over) {
      ++place;
      continue;
    }
    moved = true;
    const std::unique_ptr<Transfer> done = std::move(*place);
    place = transfers_.erase(place);
    if (failure) {
      done->message->cancel();
      const WorkSource source = done->source;
      if (done->message->in_progress()) give_up(std::move(done->message));
      source.fail(*failure);
    } else {
      done->source.complete(done->message->source());
    }
  }
  return moved;
}

bool Engine::finish_collectives(Deadline deadline) {
  while (!idle()) {
    if (!poll()) sched_yield();
    if (std::chrono::steady_clock::now() >= deadline) return idle();
  }
  return true;
}

bool Engine::finish_all(Deadline deadline) {
  while (in_use()) {
    if (!poll()) sched_yield();
    if (std::chrono::steady_clock::now() >= deadline) return !in_use();
  }
  return true;
}

Engine::FailurePtr Engine::finish(const Call& call, Plan& plan) {
  FailurePtr failure;
  while (!plan.advance() && !is_over(call, failure))
    if (crowded_) sched_yield();
  return failure;
}

Engine::FailurePtr Engine::finish(const Call& call, std::unique_ptr<Message>& message) {
  FailurePtr failure;
  for (;;) {
    if (message->advance()) return failure_of(call, *message);
    if (is_over(call, failure)) break;
    if (crowded_) sched_yield();
  }
  message->cancel();
  if (message->in_progress()) give_up(std::move(message));
  return failure;
}

Engine::FailurePtr Engine::failure_of(const Call& call, const Message& message) {
  if (message.mismatch().empty()) return nullptr;
  return context_.control->fail({.code = Code::mismatch,
                                 .message = message.mismatch(),
                                 .rank = message.source(),
                                 .group = context_.group,
                                 .op = "recv",
                                 .sequence = call.sequence});
}

Engine::FailurePtr Engine::too_many(const Call& call) {
  return context_.control->fail(
      {.code = Code::out_of_resources,
       .message = fmt::format("more than {} async ops of one group wait on MPI: wait() for some",
                              kMaxPending),
       .rank = context_.rank,
       .group = context_.group,
       .op = std::string(to_string(kind_of(call.op))),
       .sequence = call.sequence});
}

Engine::FailurePtr Engine::library_error(const Call& call, const char* what) {
  Failure failure{.code = Code::backend_error,
                  .message = fmt::format("MPI: {}", what),
                  .rank = context_.rank,
                  .group = context_.group,
                  .op = std::string(to_string(kind_of(call.op))),
                  .sequence = call.sequence};
  return context_.control->explain(std::move(failure), std::chrono::milliseconds(300));
}

}  // namespace c10d::inline v0
