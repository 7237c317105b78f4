// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/memory/shared_copy.h"

#include <sched.h>

#include <atomic>
#include <chrono>

#include "src/backends/native/memory/cma.h"
#include "src/sync/fiber.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// For a sender in the kernel, which copies a chunk in less than a millisecond but may have lost its
// CPU.
constexpr std::chrono::seconds kShareGrace{1};

void set_length(iovec& target, std::size_t bytes) noexcept {
  std::atomic_ref(target.iov_len).store(bytes, std::memory_order_seq_cst);
}

}  // namespace

CopyReceiver::CopyReceiver(ShareLines& lines, int sender, std::uint32_t number, std::byte* to,
                           std::size_t bytes)
    : lines_(&lines),
      sender_(sender),
      key_(share_key(sender, number)),
      chunks_(bytes),
      bytes_(bytes) {
  for (std::size_t i = 0; i < chunks_.count(); ++i) {
    const Part part = chunks_.part(i);
    lines.targets[i] = {to + part.first, part.bytes};
  }
  lines.flags.open(key_, chunks_.count());
}

std::optional<Part> CopyReceiver::next() noexcept {
  const std::size_t chunk = lines_->flags.take_first();
  if (chunk == lines_->flags.kNone) return {};
  return chunks_.part(chunk);
}

Part CopyReceiver::refused() const noexcept {
  if (!lines_->flags.refused(key_, chunks_.count())) return {};
  const std::size_t first = chunks_.part(lines_->flags.taken()).first;
  return {first, bytes_ - first};
}

void CopyReceiver::withdraw(Control& control) noexcept {
  for (std::size_t i = 0; i < chunks_.count(); ++i) set_length(lines_->targets[i], 0);
  lines_->flags.close();
  const auto end = std::chrono::steady_clock::now() + kShareGrace;
  while (!finished() && std::chrono::steady_clock::now() < end) {
    const auto failure = control.failure();
    if (failure && failure->code == Code::peer_died && failure->rank == sender_) return;
    if (Fiber::running())
      Fiber::yield(Poll::idle);
    else
      sched_yield();
  }
}

ChunkResult copy_chunk(ShareLines& lines, std::uint64_t key, std::int64_t receiver_pid,
                       const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t chunk = lines.flags.take_last(key);
  if (chunk == lines.flags.kNone) return ChunkResult::none;
  const ShareChunks chunks(bytes);
  const bool known = chunk < chunks.count();
  const Part part = known ? chunks.part(chunk) : Part{};
  const bool done = known && write_process(receiver_pid, lines.targets[chunk], from + part.first,
                                           part.bytes) == 0;
  lines.flags.give(key, done ? chunk : lines.flags.kNone);
  return done ? ChunkResult::copied : ChunkResult::refused;
}

}}}  // namespace c10d::v0::native
