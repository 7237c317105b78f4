// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "c10d/control.h"
#include "src/sync/flags.h"

// A block that goes from one rank's memory to another's through the kernel, copied by both ranks at
// once. The taker says where its chunks belong, and the giver has the kernel read that out of the
// shared memory in the very call that writes. So the taker can take the places back: whoever was
// stopped before that call writes nowhere when it goes on, and whoever is in it is soon out, for
// the kernel stops nobody in the middle.
namespace c10d { inline namespace v0 { namespace native {

inline constexpr std::size_t kShareChunks = 64;

// Of the taker.
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

// Tells one block from all others that went over the same lines.
constexpr std::uint64_t share_key(int giver, std::uint32_t number) noexcept {
  return static_cast<std::uint64_t>(giver + 1) << 32 | number;
}

// The taker's end of one block. Whoever has one ends it: is past over(), or calls withdraw().
class Taker {
 public:
  Taker(ShareLines& lines, int giver, std::uint32_t number, std::byte* to, std::size_t bytes);

  // What the taker copies next, if anything is left.
  std::optional<Part> next() noexcept;
  // Nothing is left.
  void close() noexcept { lines_->flags.close(); }
  // Once nothing is left: whether the giver has copied what it took.
  bool over() const noexcept { return lines_->flags.over(key_, chunks_.count()); }
  // Once it is over: what the giver took and could not copy.
  Part refused() const noexcept;
  // Returns when the giver writes no more: it has said so, or `control` knows that it died; after a
  // second at the latest.
  void withdraw(Control& control) noexcept;

 private:
  ShareLines* lines_;
  int giver_;
  std::uint64_t key_;
  ShareChunks chunks_;
  std::size_t bytes_;
};

// The giver's end: copies one chunk of a block that begins at `from`.
enum class Gift : std::uint8_t { none, given, refused };
Gift give_chunk(ShareLines& lines, std::uint64_t key, std::int64_t taker_pid, const std::byte* from,
                std::size_t bytes) noexcept;

}}}  // namespace c10d::v0::native
