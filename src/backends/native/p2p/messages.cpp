// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/messages.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "src/backends/common/failures.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kSpares = 256;
// The progress thread polls on for so many idle steps: to wake it again costs the caller more.
constexpr int kIdleSteps = 64;
constexpr std::chrono::milliseconds kTurn{1};
constexpr Deadline::rep kNever = Deadline::max().time_since_epoch().count();

// Polls for as long as the peer may take to copy so much: to sleep and be woken costs more.
WaitPolicy patient(WaitPolicy policy, std::size_t bytes) {
  constexpr std::size_t kBytesPerPoll = 384;
  constexpr std::size_t kMostPolls = 33'000;
  if (policy.spins()) policy.polls += static_cast<int>(std::min(bytes / kBytesPerPoll, kMostPolls));
  return policy;
}

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { count_.fetch_add(1); }
  ~Counted() { count_.fetch_sub(1); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

// Field by field: a copy of a struct that was just written stalls the CPU.
void fill(Transfer& transfer, const Op& op) {
  if (const auto* send = std::get_if<Send>(&op)) {
    transfer.is_send = true;
    transfer.peer = send->peer;
    transfer.tag = send->tag;
    transfer.dtype = send->input.dtype;
    transfer.data = static_cast<std::byte*>(const_cast<void*>(send->input.data));
    transfer.bytes = send->input.bytes();
  } else {
    const auto& recv = std::get<Recv>(op);
    transfer.peer = recv.peer;
    transfer.tag = recv.tag;
    transfer.dtype = recv.output.dtype;
    transfer.data = static_cast<std::byte*>(recv.output.data);
    transfer.bytes = recv.output.bytes();
    transfer.exact = recv.exact;
  }
}

const char* phase_of_message(bool is_send) {
  return is_send ? "waiting for the recv" : "waiting for the send";
}

}  // namespace

Messages::Messages(std::shared_ptr<Team> team)
    : team_(std::move(team)),
      on_done_([this](Transfer& transfer)
                   C10D_REQUIRES(mutex_) { complete(static_cast<AsyncTransfer&>(transfer)); }),
      engine_(*team_) {
  spare_.reserve(kSpares);
}

Work Messages::launch(const Call& call) {
  try {
    return call.async ? start(call) : run(call);
  } catch (const std::exception& error) {
    return Work::failed(*team_->control().fail(
        failure_in(team_->context(), call, Code::out_of_resources, error.what(), team_->rank())));
  }
}

std::optional<Received> Messages::probe(int peer, std::uint32_t tag) {
  MutexLock lock(mutex_);
  return engine_.probe(peer, tag);
}

Work Messages::run(const Call& call) {
  Transfer transfer;
  fill(transfer, call.op);
  bool done = false;
  // However this ends, no queue may keep a pointer to the stack.
  const auto leave = [this, &done](Transfer* left) {
    if (done) return;
    MutexLock lock(mutex_);
    if (!left->done) engine_.withdraw(*left);
  };
  const std::unique_ptr<Transfer, decltype(leave)> guard(&transfer, leave);
  {
    MutexLock lock(mutex_);
    engine_.post(transfer);
    done = transfer.done;
  }
  const WaitResult result = done ? WaitResult::ready : await(transfer, call);
  done = result == WaitResult::ready;
  if (done) return transfer.is_send ? Work() : Work::received(transfer.received());
  Control& control = team_->control();
  const auto failure =
      result == WaitResult::broken
          ? control.failure()
          : control.fail(control.timed_out(call, phase_of_message(transfer.is_send)));
  return Work::failed(*failure);
}

WaitResult Messages::await(const Transfer& transfer, const Call& call) {
  // At first other peers get a turn now and then only: the peer may wait for one of them.
  constexpr unsigned kFirstPolls = 1024;
  constexpr unsigned kOthersPeriod = 16;
  const Counted counted(waiting_);
  const WaitPolicy policy = patient(team_->policy(), transfer.bytes);
  unsigned polls = 0;
  return wait_until(
      {policy, team_->control(), call.deadline, nullptr}, team_->lines(team_->rank()).mailbox, [&] {
        MutexLock lock(mutex_);
        if (transfer.done) return true;
        ++polls;
        if (transfer.peer == kAnySource || polls > kFirstPolls || polls % kOthersPeriod == 0)
          engine_.progress();
        else
          engine_.progress(transfer.peer);
        return transfer.done;
      });
}

Work Messages::start(const Call& call) {
  Work work;
  bool must_step = false;
  {
    MutexLock lock(mutex_);
    auto owned = take_spare();
    AsyncTransfer& transfer = *owned;
    fill(transfer, call.op);
    try {
      engine_.post(transfer);
      if (transfer.done) {
        if (!transfer.is_send) work = Work::received(transfer.received());
        keep_spare(std::move(owned));
        return work;
      }
      transfer.call.emplace(call);
      transfer.on_done = &on_done_;
      if (!drive_)
        drive_ = std::make_shared<const std::function<bool()>>([weak = weak_from_this()] {
          const auto self = weak.lock();
          return self && self->drive();
        });
      transfer.place = pending_.size();
      pending_.push_back(std::move(owned));
    } catch (...) {
      engine_.withdraw(transfer);
      throw;
    }
    work = transfer.call->source.work();
    transfer.call->source.set_progress(drive_);
    const Deadline::rep deadline = call.deadline.time_since_epoch().count();
    if (deadline < earliest_.load(std::memory_order_relaxed))
      earliest_.store(deadline, std::memory_order_relaxed);
    must_step = !stepping_;
    stepping_ = true;
    idle_steps_ = 0;
  }
  if (must_step)
    add_progress([self = shared_from_this()] { return self->step(); }, Start::when_awake);
  return work;
}

bool Messages::drive() {
  const Counted counted(waiting_);
  constexpr std::size_t kUsualBytes = std::size_t{1} << 20;
  const WaitPolicy policy = patient(team_->policy(), kUsualBytes);
  const auto now = steady_clock::now();
  const WaitResult result = wait_until({policy, team_->control(), now + kTurn, nullptr},
                                       team_->lines(team_->rank()).mailbox, [&] {
                                         MutexLock lock(mutex_);
                                         const bool moved = progress_async();
                                         expire(now);
                                         return moved || pending_.empty();
                                       });
  if (result == WaitResult::ready) return true;
  MutexLock lock(mutex_);
  expire(steady_clock::now());
  fail_if_broken();
  return true;
}

Poll Messages::step() {
  const auto now = steady_clock::now();
  if (waiting_.load() != 0 &&
      now.time_since_epoch().count() < earliest_.load(std::memory_order_relaxed))
    return Poll::idle;
  MutexLock lock(mutex_);
  bool moved = false;
  if (!pending_.empty()) {
    idle_steps_ = 0;
    moved = progress_async();
    expire(now);
    fail_if_broken();
  }
  if (!pending_.empty()) return moved ? Poll::busy : Poll::idle;
  if (!draining_ && ++idle_steps_ < kIdleSteps) return Poll::idle;
  stepping_ = false;
  return Poll::done;
}

bool Messages::progress_async() {
  try {
    return engine_.progress();
  } catch (const std::exception& error) {
    team_->control().fail(
        failure_in(team_->context(), Code::out_of_resources, error.what(), team_->rank()));
    return true;
  }
}

void Messages::expire(Deadline now) {
  if (now.time_since_epoch().count() < earliest_.load(std::memory_order_relaxed)) return;
  Deadline::rep earliest = kNever;
  for (const auto& transfer : pending_) {
    const Call& call = transfer->call->owned.call();
    earliest = std::min(earliest, call.deadline.time_since_epoch().count());
    if (call.deadline > now) continue;
    Control& control = team_->control();
    control.fail(control.timed_out(call, phase_of_message(transfer->is_send)));
    fail_if_broken();
    return;
  }
  earliest_.store(earliest, std::memory_order_relaxed);
}

void Messages::complete(AsyncTransfer& transfer) {
  auto owned = release(transfer);
  owned->call->source.complete(owned->is_send ? Received{} : owned->received());
  if (pending_.empty()) drained_.notify_all();
  keep_spare(std::move(owned));
}

std::unique_ptr<Messages::AsyncTransfer> Messages::take_spare() {
  if (spare_.empty()) return std::make_unique<AsyncTransfer>();
  auto transfer = std::move(spare_.back());
  spare_.pop_back();
  return transfer;
}

std::unique_ptr<Messages::AsyncTransfer> Messages::release(AsyncTransfer& transfer) {
  auto owned = std::move(pending_[transfer.place]);
  if (pending_.back()) {
    pending_.back()->place = transfer.place;
    pending_[transfer.place] = std::move(pending_.back());
  }
  pending_.pop_back();
  return owned;
}

void Messages::keep_spare(std::unique_ptr<AsyncTransfer> transfer) {
  if (spare_.size() == kSpares) return;
  transfer->call.reset();
  static_cast<Transfer&>(*transfer) = {};
  spare_.push_back(std::move(transfer));
}

void Messages::fail_if_broken() {
  if (!team_->control().broken()) return;
  const auto failure = team_->control().failure();
  while (!pending_.empty()) {
    const auto transfer = release(*pending_.back());
    engine_.withdraw(*transfer);
    transfer->call->source.fail(*failure);
  }
  earliest_.store(kNever, std::memory_order_relaxed);
  drained_.notify_all();
}

void Messages::warn_of_unreceived() {
  MutexLock lock(mutex_);
  engine_.warn_of_unreceived();
}

bool Messages::drain(Deadline deadline) {
  MutexLock lock(mutex_);
  draining_ = true;
  while (!pending_.empty())
    if (drained_.wait_until(mutex_, deadline) == std::cv_status::timeout) return pending_.empty();
  return true;
}

}}}  // namespace c10d::v0::native
