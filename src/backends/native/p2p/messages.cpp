// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "src/backends/common/failures.h"
#include "src/sync/fiber.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kSpares = 256;
// The progress thread polls on for so many idle steps: to wake it again costs the caller more.
constexpr int kIdleSteps = 64;
constexpr std::chrono::milliseconds kTurn{1};
// Without a turn: nobody has waited meanwhile.
constexpr std::chrono::milliseconds kPause{10};
// How long a thread spins at sockets since something moved: not long, for the peer that it waits
// for may need its CPU. Then how long it sleeps there.
constexpr std::chrono::microseconds kSpinningAtSockets{100};
constexpr std::chrono::milliseconds kSleep{1};
// Less where a message may come by memory, which does not wake it.
constexpr std::chrono::microseconds kShortestNap{100};
// Why a connection ended shows moments later.
constexpr std::chrono::seconds kReasonPatience{5};
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

Messages::Messages(const std::shared_ptr<Team>& team) : Messages(team, routes_within(*team)) {}

Messages::Messages(std::shared_ptr<Team> team, Routes routes)
    : team_(std::move(team)),
      context_(std::move(routes.context)),
      control_(*context_.control),
      on_done_([this](Transfer& transfer)
                   C10D_REQUIRES(mutex_) { complete(static_cast<AsyncTransfer&>(transfer)); }),
      engine_(*team_, context_, routes.places, std::move(routes.connections)),
      wires_(engine_.wires()) {
  spare_.reserve(kSpares);
}

Work Messages::launch(const Call& call) {
  try {
    return call.async ? start(call) : run(call);
  } catch (const std::exception& error) {
    return Work::failed(*control_.fail(
        failure_in(context_, call, Code::out_of_resources, error.what(), context_.rank)));
  }
}

std::optional<Received> Messages::probe(int peer, std::uint32_t tag) {
  MutexLock lock(mutex_);
  return engine_.probe(peer, tag);
}

Work Messages::run(const Call& call) {
  Transfer transfer;
  fill(transfer, call.op);
  team_->note_cpu();
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
  if (done && !wires_.empty()) send_the_rest();
  if (done) return transfer.is_send ? Work() : Work::received(transfer.received());
  const auto failure =
      result == WaitResult::broken
          ? control_.failure()
          : control_.fail(control_.timed_out(call, phase_of_message(transfer.is_send)));
  return Work::failed(*failure);
}

// Short frames of a call that has ended may wait for the socket, although its peer needs them.
void Messages::send_the_rest() {
  {
    MutexLock lock(mutex_);
    if (stepping_ || !has_work()) return;
    stepping_ = true;
    idle_steps_ = 0;
  }
  add_progress([self = shared_from_this()] { return self->step(); });
}

Messages::Places Messages::places_of(int peer) const noexcept {
  const bool elsewhere = peer != kAnySource && wires_.at(peer) != nullptr;
  return {.memory = !elsewhere, .sockets = elsewhere || peer == kAnySource};
}

Messages::Places Messages::places_of_pending() {
  if (wires_.empty()) return {.memory = true, .sockets = false};
  MutexLock lock(mutex_);
  return {.memory = pending_here_ != 0, .sockets = pending_elsewhere_ != 0};
}

void Messages::count(const Transfer& transfer, int by) noexcept {
  const Places places = places_of(transfer.peer);
  if (places.memory) pending_here_ += by;
  if (places.sockets) pending_elsewhere_ += by;
}

template <class Ready>
WaitResult Messages::wait_at(Places places, const WaitPolicy& policy, Deadline deadline,
                             Ready&& ready, Deadline idle_since) {
  bool moved = false;
  if (!places.sockets)
    return wait_until({.policy = policy,
                       .control = control_,
                       .deadline = deadline,
                       .after_sleep = team_->after_sleep()},
                      team_->lines(team_->rank()).mailbox, [&] { return ready(moved); });
  constexpr int kLookPeriod = 16;  // turns, while no time passes in them
  for (int i = 0;; i = (i + 1) % kLookPeriod) {
    moved = false;
    if (ready(moved)) return WaitResult::ready;
    if (i == 0 && control_.broken()) return WaitResult::broken;
    if (i == 0 && steady_clock::now() >= deadline) return WaitResult::timed_out;
    if (moved) idle_since = {};
    if (Fiber::running()) {
      Fiber::yield(moved ? Poll::busy : Poll::idle);
      i = -1;
      continue;
    }
    if (moved) continue;
    const auto now = steady_clock::now();
    if (idle_since == Deadline{}) idle_since = now;
    const Duration idle = now - idle_since;
    if (policy.spins() && idle < kSpinningAtSockets) {
      policy.pause();
      continue;
    }
    WaitLook::due();
    const Duration nap = places.memory ? nap_after(idle, kShortestNap, kSleep) : kSleep;
    wires_.sleep(std::min<Duration>(deadline - now, nap));
    i = -1;
  }
}

Failure Messages::link_lost(const Call& call, const TransferEngine::Loss& loss) const {
  return failure_in(context_, call, Code::link_lost,
                    fmt::format("the connection to rank {} ended: {}", loss.rank, loss.why),
                    loss.rank);
}

WaitResult Messages::await(const Transfer& transfer, const Call& call) {
  // At first other peers get a turn now and then only: the peer may wait for one of them.
  constexpr unsigned kFirstPolls = 1024;
  constexpr unsigned kOthersPeriod = 16;
  const Counted counted(waiting_);
  const WaitPolicy policy = patient(team_->policy(), transfer.bytes);
  unsigned polls = 0;
  const auto turn = [&]() C10D_REQUIRES(mutex_) {
    ++polls;
    return transfer.peer == kAnySource || polls > kFirstPolls || polls % kOthersPeriod == 0
               ? engine_.progress()
               : engine_.progress(transfer.peer);
  };
  if (wires_.empty())
    return wait_until({.policy = policy,
                       .control = control_,
                       .deadline = call.deadline,
                       .after_sleep = team_->after_sleep()},
                      team_->lines(team_->rank()).mailbox, [&] {
                        MutexLock lock(mutex_);
                        if (!transfer.done) turn();
                        return transfer.done;
                      });
  Places places = places_of_pending();
  places.memory |= places_of(transfer.peer).memory;
  places.sockets |= places_of(transfer.peer).sockets;
  std::optional<TransferEngine::Loss> loss;
  const WaitResult result = wait_at(places, policy, call.deadline, [&](bool& moved) {
    MutexLock lock(mutex_);
    if (transfer.done) return true;
    moved = turn();
    if (!transfer.done) loss = engine_.loss(transfer);
    return transfer.done || loss;
  });
  if (!loss) return result;
  control_.resolve_cause(link_lost(call, *loss), kReasonPatience);
  return WaitResult::broken;
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
      if (!wires_.empty()) count(transfer, 1);
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
  if (now > last_drive_.exchange(now) + kPause) idle_since_ = now;  // a wait begins
  const auto turn = [&](bool& moved) {
    MutexLock lock(mutex_);
    moved = progress_async();
    expire(now);
    if (moved) idle_since_ = steady_clock::now();
    return moved || pending_.empty();
  };
  const WaitResult result =
      wait_at(places_of_pending(), policy, now + kTurn, turn, idle_since_.load());
  if (result == WaitResult::ready && wires_.empty()) return true;
  std::optional<Failure> lost;
  {
    MutexLock lock(mutex_);
    expire(steady_clock::now());
    fail_if_broken();
    lost = loss_of_pending();
  }
  if (!lost) return true;
  control_.resolve_cause(*std::move(lost), kReasonPatience);
  MutexLock lock(mutex_);
  fail_if_broken();
  return true;
}

std::optional<Failure> Messages::loss_of_pending() const {
  if (!engine_.wires().any_ended()) return std::nullopt;
  for (const auto& transfer : pending_)
    if (const auto loss = engine_.loss(*transfer))
      return link_lost(transfer->call->owned.call(), *loss);
  return std::nullopt;
}

bool Messages::has_work() const {
  return !pending_.empty() || (!draining_ && engine_.wires().has_output() && !control_.broken());
}

Poll Messages::step() {
  const auto now = steady_clock::now();
  if (waiting_.load() != 0 &&
      now.time_since_epoch().count() < earliest_.load(std::memory_order_relaxed))
    return Poll::idle;
  std::optional<Failure> lost;
  {
    MutexLock lock(mutex_);
    bool moved = false;
    if (has_work()) {
      idle_steps_ = 0;
      moved = progress_async();
      expire(now);
      fail_if_broken();
      lost = loss_of_pending();
    }
    if (lost && !reason_by_) reason_by_ = now + kReasonPatience;  // this thread must not wait
    if (!lost || now < *reason_by_) {
      if (has_work()) return moved ? Poll::busy : Poll::idle;
      if (!draining_ && ++idle_steps_ < kIdleSteps) return Poll::idle;
      stepping_ = false;
      return Poll::done;
    }
  }
  control_.resolve_cause(*std::move(lost), Duration::zero());
  MutexLock lock(mutex_);
  fail_if_broken();
  return Poll::busy;
}

bool Messages::progress_async() {
  try {
    return engine_.progress();
  } catch (const std::exception& error) {
    control_.fail(failure_in(context_, Code::out_of_resources, error.what(), context_.rank));
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
    control_.fail(control_.timed_out(call, phase_of_message(transfer->is_send)));
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
  if (!wires_.empty()) count(transfer, -1);
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
  if (!control_.broken()) return;
  const auto failure = control_.failure();
  while (!pending_.empty()) {
    const auto transfer = release(*pending_.back());
    engine_.withdraw(*transfer);
    transfer->call->source.fail(*failure);
  }
  earliest_.store(kNever, std::memory_order_relaxed);
  drained_.notify_all();
}

void Messages::look_after() {
  if (wires_.empty() || !mutex_.try_lock()) return;  // who has it looks, too
  MutexLock lock(mutex_, std::adopt_lock);
  engine_.look_after_wires();
}

void Messages::warn_of_unreceived() {
  MutexLock lock(mutex_);
  engine_.warn_of_unreceived();
}

bool Messages::drain(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    draining_ = true;
    while (!pending_.empty())
      if (drained_.wait_until(mutex_, deadline) == std::cv_status::timeout && !pending_.empty())
        return false;
  }
  while (!is_acknowledged()) {
    if (steady_clock::now() >= deadline) return false;
    wires_.sleep(kSleep);
  }
  return true;
}

bool Messages::is_acknowledged() {
  if (wires_.empty()) return true;
  MutexLock lock(mutex_);
  progress_async();
  return control_.broken() || wires_.is_acknowledged();
}

}}}  // namespace c10d::v0::native
