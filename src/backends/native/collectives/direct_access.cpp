// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/direct_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>

#include "src/backends/common/failures.h"
#include "src/backends/native/memory/cma.h"
#include "src/net/socket.h"
#include "src/sync/fiber.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// Between checks of the group, and turns of other fibers.
constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kWriteBytes = std::size_t{64} << 10;
// For evidence of why a peer's memory cannot be read. Its process ends thread by thread: between
// the end of its memory and that of its monitor may lie a turn of a busy scheduler.
constexpr auto kPatience = std::chrono::milliseconds(300);
constexpr auto kPatienceWithADeath = std::chrono::seconds(5);

}  // namespace

DirectAccess::~DirectAccess() {
  if (receiver_) receiver_->withdraw(collective_.team().control());
}

std::byte* DirectAccess::mapped(int peer, Side side) const {
  if (collective_.mode() == Mode::cma) return nullptr;
  const BufferLocation theirs = collective_.location(peer);
  SymmetricHeap& heap = collective_.team().heap();
  return side == Side::input ? heap.at(theirs.input_segment, theirs.input_offset, peer)
                             : heap.at(theirs.output_segment, theirs.output_offset, peer);
}

bool DirectAccess::read(int peer, Side side, std::size_t offset, std::byte* to, std::size_t bytes) {
  const BufferLocation theirs = collective_.location(peer);
  const std::uint64_t base = side == Side::input ? theirs.input_address : theirs.output_address;
  const std::int64_t pid = collective_.team().lines(peer).identity.pid;
  for (std::size_t done = 0; done < bytes; done += kReadBytes) {
    if (!collective_.check_group()) return false;
    const int error =
        read_process(pid, base + offset + done, to + done, std::min(kReadBytes, bytes - done));
    if (error != 0) return read_failed(peer, error);
    if (done + kReadBytes < bytes && Fiber::running()) Fiber::yield(Poll::busy);
  }
  return true;
}

bool DirectAccess::read_failed(int peer, int error) {
  const Team& team = collective_.team();
  return collective_.fail_with(team.control().resolve_cause(
      failure_in(team.context(), collective_.call(), Code::link_lost,
                 fmt::format("rank {} cannot read the memory of rank {} (process_vm_readv: {}); "
                             "set C10D_NATIVE_PLAN=one_shot to do without",
                             team.number(team.rank()), team.number(peer), error_text(error)),
                 team.number(peer)),
      error == ESRCH ? Duration(kPatienceWithADeath) : Duration(kPatience)));
}

bool DirectAccess::fetch(int peer, Side side, std::size_t offset, std::byte* to, std::size_t bytes,
                         StorePolicy policy) {
  if (receiver_) return fetch_shared(peer, side, offset, to);
  const std::byte* const there = mapped(peer, side);
  if (there == nullptr) return read(peer, side, offset, to, bytes);
  collective_.copy_out(to, there + offset, bytes, policy);
  return true;
}

const std::byte* DirectAccess::view(int peer, Side side, std::size_t offset, std::size_t bytes,
                                    std::byte* scratch) {
  if (const std::byte* const there = mapped(peer, side)) return there + offset;
  return read(peer, side, offset, scratch, bytes) ? scratch : nullptr;
}

// More ranks than CPUs have no core to spare.
bool DirectAccess::can_share(std::size_t bytes) const noexcept {
  return collective_.mode() == Mode::cma && !collective_.team().oversubscribed() &&
         bytes >= kLeastShared;
}

void DirectAccess::invite(int peer, std::byte* to, std::size_t bytes) {
  if (!can_share(bytes)) return;
  RankLines& own = collective_.team().lines(collective_.rank());
  receiver_.emplace(own.share, peer, collective_.epoch(), to, bytes);
  own.doorbell.ring();
}

bool DirectAccess::fetch_shared(int peer, Side side, std::size_t offset, std::byte* to) {
  while (const auto part = receiver_->next())
    if (!read(peer, side, offset + part->first, to + part->first, part->bytes)) return false;
  const auto finished = [&]() noexcept { return receiver_->finished(); };
  if (!collective_.await_ready(peer, finished,
                               "waiting for the rank that has the data to copy its part"))
    return false;
  const Part left = receiver_->refused();
  receiver_.reset();
  return read(peer, side, offset + left.first, to + left.first, left.bytes);
}

bool DirectAccess::help(int peer, const std::byte* from, std::size_t bytes) {
  if (!can_share(bytes)) return true;
  Team& team = collective_.team();
  RankLines& theirs = team.lines(peer);
  const std::uint64_t key = share_key(team.rank(), collective_.epoch());
  const auto invited = [&]() noexcept {
    return theirs.share.flags.key() == key ||
           theirs.progress.consumed.passed(collective_.epoch(), 1);
  };
  if (!collective_.await_ready(peer, invited, "waiting for a rank to take the data")) return false;
  ChunkResult last = ChunkResult::copied;
  while (last == ChunkResult::copied && team.writes() && collective_.check_group())
    last = copy_chunk(theirs.share, key, theirs.identity.pid, from, bytes);
  if (last == ChunkResult::refused) team.cannot_write();
  team.lines(team.rank()).doorbell.ring();
  return collective_.check_group();
}

bool DirectAccess::write_to_peer(int peer, std::size_t offset, const std::byte* from,
                                 std::size_t bytes, StorePolicy policy) {
  std::byte* const to = mapped(peer, Side::output) + offset;
  for (std::size_t done = 0; done < bytes; done += kWriteBytes) {
    if (!collective_.check_group()) return false;
    collective_.copy_out(to + done, from + done, std::min(kWriteBytes, bytes - done), policy);
  }
  return true;
}

}}}  // namespace c10d::v0::native
