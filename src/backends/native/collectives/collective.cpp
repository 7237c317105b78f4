// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collective.h"

#include <sched.h>

#include <atomic>
#include <utility>

#include "src/backends/common/failures.h"
#include "src/sync/fiber.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

const char* phase_of(Collective::Counter counter) noexcept {
  if (counter == &Progress::staged) return "waiting for the data of the other ranks";
  if (counter == &Progress::reduced) return "waiting for the slices that other ranks reduce";
  return "waiting for the other ranks to take the data";
}

}  // namespace

Collective::Collective(Team& team, const Call& call)
    : team_(team), call_(call), epoch_(team.next_epoch()), staging_(team, epoch_) {
  // Signed differences tell old from new only within 2^31 epochs, and a counter may rest for
  // longer.
  constexpr std::uint32_t kRefresh = 1u << 20;
  if (epoch_ % kRefresh == 0)
    for (const Counter counter : {&Progress::staged, &Progress::reduced, &Progress::consumed})
      publish(counter, 0);
}

BufferLocation Collective::location(int rank) const noexcept {
  BufferLocation location;
  std::memcpy(&location, entry(rank).payload, sizeof location);
  return location;
}

bool Collective::fail(Failure failure) {
  return fail_with(team_.control().fail(std::move(failure)));
}

bool Collective::fail_with(std::shared_ptr<const Failure> failure) noexcept {
  failure_ = std::move(failure);
  return false;
}

bool Collective::check_group() {
  return !team_.control().broken() || fail_with(team_.control().failure());
}

bool Collective::give_up(WaitResult result, const char* phase) {
  Control& control = team_.control();
  return fail_with(result == WaitResult::broken ? control.failure()
                                                : control.fail(control.timed_out(call_, phase)));
}

// Of the ranks that share this one's CPU none can run before this one yields. Once they have all
// arrived, no rank on this CPU has anything to do before the ranks on other CPUs arrive: to yield
// then would switch between waiting ranks.
template <class Ready>
bool Collective::await_peers(Ready ready, const char* phase) {
  // Where ranks share CPUs, every flag was rung for already.
  WaitContext context{.policy = team_.policy(),
                      .control = team_.control(),
                      .deadline = call_.deadline,
                      .own = team_.oversubscribed() ? nullptr : &team_.lines(rank()).doorbell,
                      .after_sleep = team_.after_sleep()};
  const auto await = [&](int peer) {
    return settle(
        wait_until(context, team_.lines(peer).doorbell, [&]() noexcept { return ready(peer); }),
        phase);
  };
  if (team_.oversubscribed()) {
    const std::vector<std::uint32_t>& cpus = team_.cpus();
    const std::uint32_t here = cpus[static_cast<std::size_t>(rank())];
    for (int i = 1; i < size(); ++i)
      if (cpus[static_cast<std::size_t>(peer(i))] == here && !await(peer(i))) return false;
    context.elsewhere = true;
  }
  for (int i = 1; i < size(); ++i)
    if (!await(peer(i))) return false;
  return true;
}

bool Collective::enter() { return announce(AccessMode::staged); }

bool Collective::enter_unstaged(const LocalBuffers& buffers) {
  BufferLocation own;
  const AccessMode access = locate(team_.heap(), rank(), buffers, own);
  std::memcpy(entry(rank()).payload, &own, sizeof own);
  return announce(access);
}

bool Collective::announce(AccessMode access) {
  RankLines& own = team_.lines(rank());
  Entry& mine = entry(rank());
  const std::uint64_t signature = call_.signature ^ team_.plan().id();
  if (access == AccessMode::registered) mode_ = Mode::undecided;
  finish_streams();
  if (team_.oversubscribed()) {
    const auto cpu = static_cast<std::uint32_t>(sched_getcpu());
    team_.cpus()[static_cast<std::size_t>(rank())] = cpu;
    mine.cpu.store(cpu, std::memory_order_relaxed);
  } else {
    team_.note_cpu();
  }
  mine.announce(epoch_, static_cast<std::uint32_t>(access), signature);
  // With a CPU per rank the ring waits until we have looked at the others' entries: right after
  // the store, it would hold that look up for as long as our cache line travels.
  if (team_.oversubscribed()) own.doorbell.ring();
  bool differs = false, late = access != AccessMode::staged;
  const auto announced = [&](int peer) noexcept {
    const Entry& theirs = entry(peer);
    if (differs || !theirs.announced(epoch_)) return differs;
    differs = theirs.signature != signature;
    late |= theirs.registered != 0;
    return true;
  };
  if (!await_peers(announced, "waiting for all ranks to enter the call")) return false;
  if (differs) return disagree();
  if (team_.oversubscribed())
    prepare_next();
  else
    own.doorbell.ring();
  entered_ = true;
  if (late && mode_ == Mode::staged) mode_ = Mode::staged_late;
  if (late && access == AccessMode::staged) publish(&Progress::staged, 1);
  return true;
}

// Every rank has entered, so no rank reads the older one of our entries any more: its line comes
// back for the next op while this one ends.
void Collective::prepare_next() noexcept {
  for (int i = 0; i < size(); ++i)
    team_.cpus()[static_cast<std::size_t>(i)] = entry(i).cpu.load(std::memory_order_relaxed);
  fetch_for_writing(&team_.lines(rank()).entries[parity_of(epoch_ + 1)]);
}

// Every rank compares every entry, so all ranks come here, and the control plane gets all calls.
bool Collective::disagree() {
  Control& control = team_.control();
  control.announce(call_);
  Control::Agreement agreement = Control::Agreement::pending;
  Doorbell& own = team_.lines(rank()).doorbell;
  const WaitResult result = wait_until({team_.policy(), control, call_.deadline, &own}, own, [&] {
    agreement = control.poll_agreement(call_);
    return agreement != Control::Agreement::pending;
  });
  if (!settle(result, "comparing the calls of all ranks")) return false;
  if (agreement == Control::Agreement::agreed)
    return fail(failure_in(team_.context(), call_, Code::mismatch,
                           "ranks entered different calls, which the control plane cannot tell "
                           "apart, or follow different plans"));
  return fail_with(control.failure());
}

bool Collective::await(int peer, Counter counter, std::size_t done) {
  const auto& theirs = team_.lines(peer).progress.*counter;
  return await_ready(
      peer, [&]() noexcept { return theirs.passed(epoch_, done); }, phase_of(counter));
}

bool Collective::await_all(Counter counter, std::size_t done) {
  return await_peers(
      [=, this](int peer) noexcept {
        return (team_.lines(peer).progress.*counter).passed(epoch_, done);
      },
      phase_of(counter));
}

bool Collective::await_free(std::size_t step, int reader, Counter counter) {
  const std::size_t done = steps_before_reuse(step, kSlots);
  if (done == 0 || reader == rank()) return true;
  return reader == kEveryRank ? await_all(counter, done) : await(reader, counter, done);
}

// A rank has a peer's segment for certain only while it has memory of its own in it: else it may
// have freed it.
bool Collective::all_registered() const noexcept {
  const BufferLocation own = location(rank());
  for (int peer = 0; peer < size(); ++peer)
    if (entry(peer).registered != static_cast<std::uint32_t>(AccessMode::registered) ||
        !in_same_segments(location(peer), own))
      return false;
  return true;
}

// Where every rank's memory is registered, the plan for registered memory counts, else the plain
// one. A rank that knows before it enters that the plain one is staged stages first: if it is
// registered itself it cannot know, and says where its memory lies.
const AlgorithmChoice* Collective::choose(OpKind op, DType dtype, std::size_t bytes,
                                          const LocalBuffers& buffers) {
  PlanKey key = plan_key(op, dtype, bytes);
  const AlgorithmChoice& plain = team_.plan().find(key);
  const bool plain_is_staged = !is_direct(plain.algorithm);
  if (plain_is_staged && team_.heap().empty()) return &plain;
  key.registered = true;
  const AlgorithmChoice& best = team_.plan().find(key);
  if (plain_is_staged && &best == &plain) return &plain;
  BufferLocation own;
  const AccessMode access = locate(team_.heap(), rank(), buffers, own);
  if (plain_is_staged && access != AccessMode::registered) return &plain;
  std::memcpy(entry(rank()).payload, &own, sizeof own);
  if (!announce(access)) return nullptr;
  return &choose_entered(op, dtype, bytes);
}

const AlgorithmChoice& Collective::choose_entered(OpKind op, DType dtype, std::size_t bytes) {
  PlanKey key = plan_key(op, dtype, bytes);
  key.registered = all_registered();
  const AlgorithmChoice& choice = team_.plan().find(key);
  if (!is_direct(choice.algorithm))
    mode_ = Mode::staged_late;
  else if (!key.registered)
    mode_ = Mode::cma;
  else
    mode_ = choice.algorithm == Algorithm::push ? Mode::pushed : Mode::mapped;
  return choice;
}

void Collective::reduce_out(const Reducing& how, std::byte* out, std::size_t bytes,
                            StorePolicy policy, const Copying& refill) {
  streamed_ |= policy == StorePolicy::streaming;
  reduce(how.dtype, how.op, out, sources(), bytes / size_of(how.dtype), policy, refill);
}

bool Collective::leave() {
  publish(&Progress::consumed, 1);
  return await_all(&Progress::consumed, 1);
}

bool Collective::finish(bool ok) {
  staging_.prefetch_next();
  finish_streams();
  if (ring_pending_) team_.lines(rank()).doorbell.ring();
  if (ok && !is_direct(mode_)) return true;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (ok && check_group()) return true;
  constexpr std::size_t kAllSteps = ~std::uint32_t{0};
  publish(&Progress::consumed, kAllSteps);
  team_.lines(rank()).doorbell.ring();
  if (mode_ == Mode::undecided || mode_ == Mode::pushed) await_writers();
  // A rank that reads what is written here next must see that the group is broken.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return false;
}

// A peer may be in the middle of a block that it began before the group broke. It is past its last
// one when it says that it needs nothing any more, or, as the root of a broadcast, that it has
// written everything. The dead write nothing, and for one that is stopped there is no waiting.
void Collective::await_writers() {
  const auto end = std::chrono::steady_clock::now() + kGrace;
  const auto died = [&](int peer) {
    return failure_ && failure_->code == Code::peer_died && failure_->rank == peer;
  };
  for (const int peer : peers()) {
    const Progress& theirs = team_.lines(peer).progress;
    while (!theirs.consumed.passed(epoch_, 1) && !theirs.reduced.passed(epoch_, 1)) {
      if (died(peer) || std::chrono::steady_clock::now() >= end) break;
      if (Fiber::running())
        Fiber::yield(Poll::idle);
      else
        sched_yield();
    }
  }
}

}}}  // namespace c10d::v0::native
