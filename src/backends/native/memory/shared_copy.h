// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "c10d/spi/control.h"
#include "src/sync/flags.h"

// A block that both ranks copy at once, through the kernel, from one rank's memory to the other's.
// The receiver publishes the target of each chunk in shared memory, and the kernel reads the target
// in the same system call that writes the chunk. So the receiver can withdraw the targets: a sender
// that was stopped before the call writes nothing when it resumes, and one that is inside the call
// soon returns, because the kernel does not stop a process in the middle of it.
namespace c10d { inline namespace v0 { namespace native {

inline constexpr std::size_t kShareChunks = 64;

// Of the receiver.
struct alignas(128) ShareLines {
  BasicShare<HostMemory> flags;
  alignas(64) iovec targets[kShareChunks];
};

// The part [first, first + bytes) of a block.
struct Part {
  std::size_t first = 0;
  std::size_t bytes = 0;
};

// How a block is cut, the same on both ranks.
class ShareChunks {
 public:
  explicit constexpr ShareChunks(std::size_t bytes) noexcept
      : bytes_(bytes), each_(chunk_of(bytes)), count_((bytes + each_ - 1) / each_) {}
  constexpr std::size_t count() const noexcept { return count_; }
  constexpr Part part(std::size_t chunk) const noexcept {
    const std::size_t first = chunk * each_;
    return {first, std::min(each_, bytes_ - first)};
  }

 private:
  static constexpr std::size_t chunk_of(std::size_t bytes) noexcept {
    constexpr std::size_t kLeast = std::size_t{32} << 10, kMost = std::size_t{512} << 10;
    constexpr std::size_t kPage = 4096;
    const std::size_t wanted = std::max(
        {std::min(kLeast, bytes / 2), std::min(bytes / 8, kMost), bytes / kShareChunks + 1});
    return (wanted + kPage - 1) / kPage * kPage;
  }
  std::size_t bytes_, each_, count_;
};

// Tells one block from all others that used the same lines.
constexpr std::uint64_t share_key(int sender, std::uint32_t number) noexcept {
  return static_cast<std::uint64_t>(sender + 1) << 32 | number;
}

// The receiver's end of one block. Its owner waits for finished() or calls withdraw().
class CopyReceiver {
 public:
  CopyReceiver(ShareLines& lines, int sender, std::uint32_t number, std::byte* to,
               std::size_t bytes);

  // What the receiver copies next, if anything is left.
  std::optional<Part> next() noexcept;
  // Nothing is left.
  void close() noexcept { lines_->flags.close(); }
  // Once nothing is left: whether the sender has copied what it took.
  bool finished() const noexcept { return lines_->flags.sender_done(key_, chunks_.count()); }
  // Once finished(): what the sender took and could not copy.
  Part refused() const noexcept;
  // Returns when the sender writes no more: it has said so, or `control` knows that it died; after
  // a second at the latest.
  void withdraw(Control& control) noexcept;

 private:
  ShareLines* lines_;
  int sender_;
  std::uint64_t key_;
  ShareChunks chunks_;
  std::size_t bytes_;
};

// The sender's end: copies one chunk of a block that begins at `from`.
enum class ChunkResult : std::uint8_t { none, copied, refused };
ChunkResult copy_chunk(ShareLines& lines, std::uint64_t key, std::int64_t receiver_pid,
                       const std::byte* from, std::size_t bytes) noexcept;

}}}  // namespace c10d::v0::native
