// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collective.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace c10d { inline namespace v0 { namespace native {
namespace {

constexpr std::size_t kLine = 64;

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

const char* phase_of(Round::Word word) noexcept {
  if (word == &Progress::staged) return "waiting for the data of the other ranks";
  if (word == &Progress::reduced) return "waiting for the slices that other ranks reduce";
  return "waiting for the other ranks to take the data";
}

}  // namespace

Round::Round(Team& team, const Call& call) : team_(team), call_(call), epoch_(team.next_epoch()) {
  // Signed differences tell old from new only within 2^31 epochs, and a word may rest for longer.
  constexpr std::uint32_t kRefresh = 1u << 20;
  if (epoch_ % kRefresh == 0)
    for (const Word word : {&Progress::staged, &Progress::reduced, &Progress::consumed})
      publish(word, 0);
}

bool Round::fail(Failure failure) {
  failure_ = team_.control().fail(std::move(failure));
  return false;
}

Pieces Round::cut(const Choice& choice, std::size_t bytes, std::size_t width) const noexcept {
  if (bytes == 0) return {};
  const std::size_t half = team_.layout().half_bytes();
  const std::size_t chunk = choice.chunk / width;
  if (bytes <= std::min(chunk, half / width / kLine * kLine)) return {round_up(bytes), 1};
  const std::size_t slot = half / kSlots / width / kLine * kLine;
  const std::size_t piece = std::clamp(round_up(chunk), kLine, slot);
  return {piece, (bytes + piece - 1) / piece};
}

Pieces Round::cut_one_way(const Choice& choice, std::size_t bytes, bool stages,
                          std::size_t width) noexcept {
  // Fewer places come back too soon, more fall out of the caches.
  constexpr std::size_t kLeastMoved = std::size_t{32} << 10;
  constexpr std::size_t kMostAhead = std::size_t{16} << 10;
  const std::size_t places = team_.layout().half_bytes() / 4;
  Choice finer = choice;
  if (!team_.oversubscribed()) finer.chunk = one_way_chunk(choice.chunk, round_up(bytes) * width);
  Pieces pieces = cut(finer, bytes, width);
  const std::size_t span = pieces.bytes * std::min(pieces.count, kSlots) * width;
  const auto first_of = [&](std::uint32_t epoch) {
    return span >= kLeastMoved && span <= places ? epoch / 2 % (places / span) * span : 0;
  };
  pieces.first = first_of(epoch_);
  if (stages && !team_.oversubscribed())
    ahead_ = {first_of(epoch_ + 1), std::min(span, kMostAhead)};
  return pieces;
}

bool Round::give_up(WaitResult result, const char* phase) {
  Control& control = team_.control();
  failure_ = result == WaitResult::broken ? control.failure()
                                          : control.fail(control.timed_out(call_, phase));
  return false;
}

// Of ranks that share this one's CPU none can run before this one gives way. Once they are all
// there, nobody here has anything to do before the ranks on other CPUs are: to give way then would
// switch between waiting ranks.
template <class Ready>
bool Round::await_peers(Ready ready, const char* phase) {
  // Where ranks share CPUs, every flag was rung for already.
  WaitContext context{team_.policy(), team_.control(), call_.deadline,
                      team_.oversubscribed() ? nullptr : &team_.lines(rank()).doorbell};
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

bool Round::enter() { return announce(Access::staged); }

bool Round::enter_unstaged(const Exposed& exposed) {
  Reach reach;
  const Access access = locate(exposed, reach);
  std::memcpy(entry(rank()).payload, &reach, sizeof reach);
  return announce(access);
}

bool Round::announce(Access access) {
  RankLines& own = team_.lines(rank());
  Entry& mine = entry(rank());
  const std::uint64_t signature = call_.signature ^ team_.plan().id();
  pushed_ = access == Access::registered;  // perhaps, until the algorithm is known
  finish_streams();
  if (team_.oversubscribed()) {
    const auto cpu = static_cast<std::uint32_t>(sched_getcpu());
    team_.cpus()[static_cast<std::size_t>(rank())] = cpu;
    mine.cpu.store(cpu, std::memory_order_relaxed);
  }
  mine.announce(epoch_, static_cast<std::uint32_t>(access), signature);
  // With a CPU per rank the ring waits until we have looked at the others' entries: right after
  // the store, it would hold that look up for as long as our cache line travels.
  if (team_.oversubscribed()) own.doorbell.ring();
  bool differs = false;
  const auto announced = [&](int peer) noexcept {
    const Entry& theirs = entry(peer);
    if (differs || !theirs.announced(epoch_)) return differs;
    differs = theirs.signature != signature;
    late_ |= theirs.registered != 0;
    return true;
  };
  if (!await_peers(announced, "waiting for all ranks to enter the call")) return false;
  if (differs) return disagree();
  if (team_.oversubscribed())
    prepare_next();
  else
    own.doorbell.ring();
  entered_ = true;
  if (access != Access::staged)
    late_ = true;
  else if (late_)
    publish(&Progress::staged, 1);
  return true;
}

// Everybody's entry is here now, and nobody looks at the older one of ours any more: its line comes
// back for the next op while this one ends.
void Round::prepare_next() noexcept {
  for (int i = 0; i < size(); ++i)
    team_.cpus()[static_cast<std::size_t>(i)] = entry(i).cpu.load(std::memory_order_relaxed);
  fetch_for_writing(&team_.lines(rank()).entries[parity_of(epoch_ + 1)]);
}

// Every rank compares every entry, so all ranks come here, and the control plane gets all calls.
bool Round::disagree() {
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
    return fail({.code = Code::mismatch,
                 .message = "ranks entered different calls, which the control plane cannot tell "
                            "apart, or follow different plans",
                 .group = team_.context().group,
                 .op = std::string(to_string(kind_of(call_.op))),
                 .sequence = call_.sequence});
  failure_ = control.failure();
  return false;
}

bool Round::await(int peer, Word word, std::size_t done) {
  RankLines& theirs = team_.lines(peer);
  const WaitContext context{team_.policy(), team_.control(), call_.deadline,
                            &team_.lines(rank()).doorbell};
  const WaitResult result = wait_until(context, theirs.doorbell, [&]() noexcept {
    return (theirs.progress.*word).passed(epoch_, done);
  });
  return settle(result, phase_of(word));
}

bool Round::await_all(Word word, std::size_t done) {
  return await_peers(
      [=, this](int peer) noexcept {
        return (team_.lines(peer).progress.*word).passed(epoch_, done);
      },
      phase_of(word));
}

bool Round::await_free(std::size_t step, int reader, Word word) {
  const std::size_t done = steps_before_reuse(step, kSlots);
  if (done == 0 || reader == rank()) return true;
  return reader == kEveryRank ? await_all(word, done) : await(reader, word, done);
}

}}}  // namespace c10d::v0::native
