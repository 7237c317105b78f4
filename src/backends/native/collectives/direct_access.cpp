// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a call reach each other's memory, and the choice of an algorithm that hangs on
// it.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "src/backends/native/collectives/collective.h"
#include "src/backends/native/memory/cma.h"
#include "src/net/socket.h"
#include "src/sync/fiber.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// Between looks at whether the group still stands.
constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kWriteBytes = std::size_t{64} << 10;
// For evidence of why a peer's memory cannot be read. Its process ends thread by thread: between
// the end of its memory and that of its monitor may lie a turn of a busy scheduler.
constexpr auto kPatience = std::chrono::milliseconds(300);
constexpr auto kPatienceWithADeath = std::chrono::seconds(5);

std::pair<std::uint32_t, std::uint32_t> segments_of(const Reach& reach) {
  const std::uint32_t input = reach.input_segment != 0 ? reach.input_segment : reach.output_segment;
  const std::uint32_t output = reach.output_segment != 0 ? reach.output_segment : input;
  return std::minmax(input, output);
}

}  // namespace

Access Round::locate(const Exposed& exposed, Reach& reach) const {
  Heap& heap = team_.heap();
  reach = {};
  reach.input_address = reinterpret_cast<std::uintptr_t>(exposed.input);
  reach.output_address = reinterpret_cast<std::uintptr_t>(exposed.output);
  if (heap.empty()) return Access::addressed;
  bool all = exposed.input != nullptr || exposed.output != nullptr;
  if (exposed.input != nullptr) {
    const auto place = heap.find(exposed.input, exposed.input_bytes, rank());
    all &= place.has_value();
    reach.input_segment = place ? place->segment : 0;
    reach.input_offset = place ? place->offset : 0;
  }
  if (exposed.output != nullptr) {
    const auto place = heap.find(exposed.output, exposed.output_bytes, rank());
    all &= place.has_value();
    reach.output_segment = place ? place->segment : 0;
    reach.output_offset = place ? place->offset : 0;
  }
  return all ? Access::registered : Access::addressed;
}

Reach Round::reach(int rank) const noexcept {
  Reach reach;
  std::memcpy(&reach, entry(rank).payload, sizeof reach);
  return reach;
}

// A rank has a peer's segment for certain only while it has memory of its own in it: else it may
// have freed it.
bool Round::all_registered() const noexcept {
  const auto own = segments_of(reach(rank()));
  for (int peer = 0; peer < size(); ++peer)
    if (entry(peer).registered != static_cast<std::uint32_t>(Access::registered) ||
        segments_of(reach(peer)) != own)
      return false;
  return true;
}

// Where every rank's memory is registered, the plan for registered memory counts, else the plain
// one. A rank that knows before it enters that the plain one is staged stages first: if it is
// registered itself it cannot know, and says where its memory lies.
const Choice* Round::choose(OpKind op, DType dtype, std::size_t bytes, const Exposed& exposed) {
  PlanKey key = plan_key(op, dtype, bytes);
  const Choice& plain = team_.plan().find(key);
  const bool plain_is_staged = !is_direct(plain.algorithm);
  if (plain_is_staged && team_.heap().empty()) return &plain;
  key.registered = true;
  const Choice& best = team_.plan().find(key);
  if (plain_is_staged && &best == &plain) return &plain;
  Reach reach;
  const Access access = locate(exposed, reach);
  if (plain_is_staged && access != Access::registered) return &plain;
  std::memcpy(entry(rank()).payload, &reach, sizeof reach);
  if (!announce(access)) return nullptr;
  return &choose_entered(op, dtype, bytes);
}

const Choice& Round::choose_entered(OpKind op, DType dtype, std::size_t bytes) {
  PlanKey key = plan_key(op, dtype, bytes);
  key.registered = mapped_ = all_registered();
  const Choice& choice = team_.plan().find(key);
  direct_ = is_direct(choice.algorithm);
  pushed_ = choice.algorithm == Algorithm::push;
  return choice;
}

std::byte* Round::mapped(int peer, Side side) const {
  if (!mapped_) return nullptr;
  const Reach theirs = reach(peer);
  return side == Side::input ? team_.heap().at(theirs.input_segment, theirs.input_offset, peer)
                             : team_.heap().at(theirs.output_segment, theirs.output_offset, peer);
}

bool Round::read(int peer, Side side, std::size_t offset, std::byte* to, std::size_t bytes) {
  const Reach theirs = reach(peer);
  const std::uint64_t base = side == Side::input ? theirs.input_address : theirs.output_address;
  for (std::size_t done = 0; done < bytes; done += kReadBytes) {
    if (!stands()) return false;
    const int error = read_process(team_.lines(peer).identity.pid, base + offset + done, to + done,
                                   std::min(kReadBytes, bytes - done));
    if (error != 0) return lost(peer, error);
  }
  return true;
}

bool Round::fetch(int peer, Side side, std::size_t offset, std::byte* to, std::size_t bytes,
                  StorePolicy policy) {
  if (taker_) return fetch_shared(peer, side, offset, to);
  const std::byte* const there = mapped(peer, side);
  if (there == nullptr) return read(peer, side, offset, to, bytes);
  copy_out(to, there + offset, bytes, policy);
  return true;
}

// More ranks than CPUs have no core to spare.
bool Round::shares(std::size_t bytes) const noexcept {
  return direct_ && !mapped_ && !team_.oversubscribed() && bytes >= kLeastShared;
}

void Round::invite(int peer, std::byte* to, std::size_t bytes) {
  if (!shares(bytes)) return;
  RankLines& own = team_.lines(rank());
  taker_.emplace(own.share, peer, epoch_, to, bytes);
  own.doorbell.ring();
}

bool Round::fetch_shared(int peer, Side side, std::size_t offset, std::byte* to) {
  while (const auto part = taker_->next())
    if (!read(peer, side, offset + part->first, to + part->first, part->bytes)) return false;
  const WaitContext context{team_.policy(), team_.control(), call_.deadline,
                            &team_.lines(rank()).doorbell};
  const auto over = [&]() noexcept { return taker_->over(); };
  if (!settle(wait_until(context, team_.lines(peer).doorbell, over),
              "waiting for the rank that has the data to copy its part"))
    return false;
  const Part left = taker_->refused();
  taker_.reset();
  return read(peer, side, offset + left.first, to + left.first, left.bytes);
}

bool Round::help(int peer, const std::byte* from, std::size_t bytes) {
  if (!shares(bytes)) return true;
  RankLines& theirs = team_.lines(peer);
  Doorbell& own = team_.lines(rank()).doorbell;
  const std::uint64_t key = share_key(rank(), epoch_);
  const auto invited = [&]() noexcept {
    return theirs.share.flags.key() == key || theirs.progress.consumed.passed(epoch_, 1);
  };
  if (!settle(wait_until({team_.policy(), team_.control(), call_.deadline, &own}, theirs.doorbell,
                         invited),
              "waiting for a rank to take the data"))
    return false;
  Gift last = Gift::given;
  while (last == Gift::given && team_.writes() && stands())
    last = give_chunk(theirs.share, key, theirs.identity.pid, from, bytes);
  if (last == Gift::refused) team_.cannot_write();
  own.ring();
  return stands();
}

Round::~Round() {
  if (taker_) taker_->withdraw(team_.control());
}

bool Round::write_to_peer(int peer, std::size_t offset, const std::byte* from, std::size_t bytes,
                          StorePolicy policy) {
  std::byte* const to = mapped(peer, Side::output) + offset;
  for (std::size_t done = 0; done < bytes; done += kWriteBytes) {
    if (!stands()) return false;
    copy_out(to + done, from + done, std::min(kWriteBytes, bytes - done), policy);
  }
  return true;
}

bool Round::stands() {
  if (!team_.control().broken()) return true;
  failure_ = team_.control().failure();
  return false;
}

bool Round::finish(bool ok) {
  if (ahead_.bytes != 0)
    fetch_for_writing(
        team_.layout().staging(team_.base(), rank(), parity_of(epoch_ + 1)) + ahead_.first,
        ahead_.bytes);
  finish_streams();
  if (unrung_) team_.lines(rank()).doorbell.ring();
  if (ok && !direct_) return true;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (ok && stands()) return true;
  constexpr std::size_t kAllSteps = ~std::uint32_t{0};
  publish(&Progress::consumed, kAllSteps);
  team_.lines(rank()).doorbell.ring();
  if (pushed_) await_writers();
  // Who reads what is written here next must see that the group is broken.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return false;
}

// A peer may be in the middle of a block that it began before the group broke. It is past its last
// one when it says that it needs nothing any more, or, the root of a broadcast, that it gave all.
// The dead write nothing, and for one that is stopped there is no waiting.
void Round::await_writers() {
  const auto end = std::chrono::steady_clock::now() + kGrace;
  const auto died = [&](int peer) {
    return failure_ && failure_->code == Code::peer_died && failure_->rank == peer;
  };
  for (int i = 1; i < size(); ++i) {
    const Progress& theirs = team_.lines(peer(i)).progress;
    while (!theirs.consumed.passed(epoch_, 1) && !theirs.reduced.passed(epoch_, 1)) {
      if (died(peer(i)) || std::chrono::steady_clock::now() >= end) break;
      if (Fiber::running())
        Fiber::yield(Poll::idle);
      else
        sched_yield();
    }
  }
}

const std::byte* Round::view(int peer, Side side, std::size_t offset, std::size_t bytes,
                             std::byte* scratch) {
  if (const std::byte* const there = mapped(peer, side)) return there + offset;
  return read(peer, side, offset, scratch, bytes) ? scratch : nullptr;
}

bool Round::lost(int peer, int error) {
  failure_ = team_.control().resolve_cause(
      {.code = Code::link_lost,
       .message = fmt::format("rank {} cannot read the memory of rank {} (process_vm_readv: {}); "
                              "C10D_NATIVE_PLAN=one_shot does without",
                              rank(), peer, error_text(error)),
       .rank = peer,
       .group = team_.context().group,
       .op = std::string(to_string(kind_of(call_.op))),
       .sequence = call_.sequence},
      error == ESRCH ? Duration(kPatienceWithADeath) : Duration(kPatience));
  return false;
}

void Round::reduce_out(const Reducing& how, std::byte* out, std::size_t bytes, StorePolicy policy,
                       const Copying& refill) {
  streamed_ |= policy == StorePolicy::streaming;
  reduce(how.dtype, how.op, out, sources(), bytes / size_of(how.dtype), policy, refill);
}

bool Round::leave() {
  publish(&Progress::consumed, 1);
  return await_all(&Progress::consumed, 1);
}

}}}  // namespace c10d::v0::native
