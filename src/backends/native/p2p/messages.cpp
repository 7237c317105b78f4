// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/messages.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

namespace c10d { inline namespace v0 { namespace native {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kSpares = 256;
// The progress thread stays around for so many idle steps: waking it again would cost the caller
// more than it costs to look.
constexpr int kIdleSteps = 64;
constexpr std::chrono::milliseconds kTurn{1};
constexpr Deadline::rep kNever = Deadline::max().time_since_epoch().count();

// For as long as the peer may take to copy so much: falling asleep meanwhile costs more.
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

template <class T>
void fill_from(T& message, const Op& op) {
  if (const auto* send = std::get_if<Send>(&op)) {
    message.is_send = true;
    message.peer = send->peer;
    message.tag = send->tag;
    message.dtype = send->input.dtype;
    // Only read; the same struct serves both directions.
    message.data = static_cast<std::byte*>(const_cast<void*>(send->input.data));
    message.bytes = send->input.bytes();
  } else {
    const auto& recv = std::get<Recv>(op);
    message.peer = recv.peer;
    message.tag = recv.tag;
    message.dtype = recv.output.dtype;
    message.data = static_cast<std::byte*>(recv.output.data);
    message.bytes = recv.output.bytes();
  }
}

const char* phase_of_message(bool is_send) {
  return is_send ? "waiting for the recv" : "waiting for the send";
}

}  // namespace

Messages::Messages(std::shared_ptr<Team> team) : team_(std::move(team)) {
  spare_.reserve(kSpares);
  for (int peer = 0; peer < team_->size(); ++peer)
    peers_.push_back({.out = Sender(*team_, peer),
                      .in = Receiver(*team_, peer),
                      .readable = team_->reads(peer)});
}

Work Messages::launch(const Call& call) {
  try {
    return call.async ? start(call) : run(call);
  } catch (const std::exception& error) {
    return Work::failed(*team_->control().fail({.code = Code::out_of_resources,
                                                .message = error.what(),
                                                .rank = team_->rank(),
                                                .group = team_->context().group,
                                                .op = std::string(to_string(kind_of(call.op))),
                                                .sequence = call.sequence}));
  }
}

Work Messages::run(const Call& call) {
  Transfer transfer;
  fill_from(transfer, call.op);
  bool done = false;
  // However this ends, no queue may hold on to the stack.
  const auto leave = [this, &done](Transfer* left) {
    if (done) return;
    MutexLock lock(mutex_);
    if (!left->done) withdraw(*left);
  };
  const std::unique_ptr<Transfer, decltype(leave)> guard(&transfer, leave);
  {
    MutexLock lock(mutex_);
    post(transfer);
    done = transfer.done;
  }
  const WaitResult result = done ? WaitResult::ready : await(transfer, call);
  done = result == WaitResult::ready;
  if (done) return transfer.is_send ? Work() : Work::received_from(transfer.source);
  Control& control = team_->control();
  const auto failure =
      result == WaitResult::broken
          ? control.failure()
          : control.fail(control.timed_out(call, phase_of_message(transfer.is_send)));
  return Work::failed(*failure);
}

WaitResult Messages::await(const Transfer& transfer, const Call& call) {
  // Others are looked at now and then at first, for what they send may be what the peer waits for.
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
          progress();
        else
          progress(transfer.peer);
        return transfer.done;
      });
}

Work Messages::start(const Call& call) {
  Work work;
  bool must_step = false;
  {
    MutexLock lock(mutex_);
    auto spare = take_spare();
    Transfer& transfer = *spare;
    fill_from(transfer, call.op);
    try {
      post(transfer);
      if (transfer.done) {
        if (!transfer.is_send) work = Work::received_from(transfer.source);
        keep_spare(std::move(spare));
        return work;
      }
      transfer.async.emplace(call);
      if (!drive_)
        drive_ = std::make_shared<const std::function<bool()>>([weak = weak_from_this()] {
          const auto self = weak.lock();
          return self && self->drive();
        });
      transfer.place = async_.size();
      async_.push_back(std::move(spare));
    } catch (...) {
      withdraw(transfer);
      throw;
    }
    work = transfer.async->source.work();
    transfer.async->source.set_progress(drive_);
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

// In wait() of an async op, whichever: some progress, or a turn without.
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
                                         return moved || async_.empty();
                                       });
  if (result == WaitResult::ready) return true;
  MutexLock lock(mutex_);
  expire(steady_clock::now());
  fail_if_broken();
  return true;
}

// In the progress thread, as long as an async op is pending and a little longer.
Poll Messages::step() {
  const auto now = steady_clock::now();
  if (waiting_.load() != 0 &&
      now.time_since_epoch().count() < earliest_.load(std::memory_order_relaxed))
    return Poll::idle;
  MutexLock lock(mutex_);
  bool moved = false;
  if (!async_.empty()) {
    idle_steps_ = 0;
    moved = progress_async();
    expire(now);
    fail_if_broken();
  }
  if (!async_.empty()) return moved ? Poll::busy : Poll::idle;
  if (!draining_ && ++idle_steps_ < kIdleSteps) return Poll::idle;
  stepping_ = false;
  return Poll::done;
}

bool Messages::progress_async() {
  try {
    return progress();
  } catch (const std::exception& error) {
    team_->control().fail({.code = Code::out_of_resources,
                           .message = error.what(),
                           .rank = team_->rank(),
                           .group = team_->context().group});
    return true;
  }
}

void Messages::expire(Deadline now) {
  if (now.time_since_epoch().count() < earliest_.load(std::memory_order_relaxed)) return;
  Deadline::rep earliest = kNever;
  for (const auto& transfer : async_) {
    const Call& call = transfer->async->owned.call();
    earliest = std::min(earliest, call.deadline.time_since_epoch().count());
    if (call.deadline > now) continue;
    Control& control = team_->control();
    control.fail(control.timed_out(call, phase_of_message(transfer->is_send)));
    fail_if_broken();
    return;
  }
  earliest_.store(earliest, std::memory_order_relaxed);
}

void Messages::finish(Transfer& transfer) {
  transfer.done = true;
  if (!transfer.async) return;
  auto owned = release(transfer);
  owned->async->source.complete(owned->source);
  if (async_.empty()) drained_.notify_all();
  keep_spare(std::move(owned));
}

// From every queue. The group is broken: nobody gets half a message and goes on.
void Messages::withdraw(Transfer& transfer) {
  posted_.remove(transfer);
  for (Peer& peer : peers_) {
    std::erase(peer.queued, &transfer);
    std::erase(peer.offered, &transfer);
    std::erase(peer.streaming, &transfer);
    std::erase(peer.reading, &transfer);
    std::erase(peer.receiving, &transfer);
  }
  if (shared_ == &transfer) {
    taker_->withdraw(team_->control());
    taker_.reset();
    shared_ = nullptr;
  }
  // Who reads what is written into its memory next must see that.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::unique_ptr<Messages::Transfer> Messages::take_spare() {
  if (spare_.empty()) return std::make_unique<Transfer>();
  auto transfer = std::move(spare_.back());
  spare_.pop_back();
  return transfer;
}

std::unique_ptr<Messages::Transfer> Messages::release(Transfer& transfer) {
  auto owned = std::move(async_[transfer.place]);
  if (async_.back()) {
    async_.back()->place = transfer.place;
    async_[transfer.place] = std::move(async_.back());
  }
  async_.pop_back();
  return owned;
}

void Messages::keep_spare(std::unique_ptr<Transfer> transfer) {
  if (spare_.size() == kSpares) return;
  transfer->async.reset();
  transfer->before = transfer->after = nullptr;
  static_cast<Message&>(*transfer) = {};
  spare_.push_back(std::move(transfer));
}

void Messages::fail_if_broken() {
  if (!team_->control().broken()) return;
  const auto failure = team_->control().failure();
  while (!async_.empty()) {
    const auto transfer = release(*async_.back());
    withdraw(*transfer);
    transfer->async->source.fail(*failure);
  }
  earliest_.store(kNever, std::memory_order_relaxed);
  drained_.notify_all();
}

bool Messages::drain(Deadline deadline) {
  MutexLock lock(mutex_);
  draining_ = true;
  while (!async_.empty())
    if (drained_.wait_until(mutex_, deadline) == std::cv_status::timeout) return async_.empty();
  return true;
}

}}}  // namespace c10d::v0::native
