// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

namespace c10d { inline namespace v0 { namespace native {

// The bytes between two ranks of different hosts, both ways, in order: a state machine without a
// socket. Both ranks know which op moves what, and in which order: a receive is posted in the place
// of its send. On the wire each block goes as chunks. A chunk has a header of 32 bytes that says
// where it belongs, and checksums (CRC-32C) of itself and of the data. What does not fit, or came
// broken, ends the stream. The data is sent from, and received into, the caller's memory, which
// stays until the block is through. Numbers are in the byte order of the hosts: another order
// fails at the first chunk. For one thread at a time.
class Stream {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{128} << 10;  // while it is in the L2 cache
  static constexpr std::size_t kHeaderBytes = 32;

  // `sequence`: of the op. An empty block does not travel, and is through at once.
  void send(const std::byte* from, std::size_t bytes, std::uint64_t sequence);
  void receive(std::byte* to, std::size_t bytes, std::uint64_t sequence);
  // How many blocks were posted, and are through.
  std::size_t posted_sends() const noexcept { return out_.posted; }
  std::size_t sent() const noexcept { return out_.through; }
  std::size_t posted_receives() const noexcept { return in_.posted; }
  std::size_t received() const noexcept { return in_.through; }
  bool sends() const noexcept { return out_.posted != out_.through; }
  bool awaits() const noexcept { return in_.posted != in_.through; }

  // What the socket takes next, and how much of it it took. Empty: nothing waits.
  std::span<iovec> output() noexcept;
  void wrote(std::size_t bytes) noexcept;
  // Where what arrives next belongs, and how much came. Empty: nothing is awaited.
  std::span<iovec> input() noexcept;
  void read(std::size_t bytes);

  // Why the stream is of no more use; empty: it is.
  const std::string& problem() const noexcept { return problem_; }
  void end(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

 private:
  struct Block {
    std::byte* data;
    std::size_t bytes;
    std::uint64_t sequence;
  };
  // One way. `moved`: of the header and the data of the chunk at `offset` of the first block.
  struct Way {
    std::deque<Block> blocks;
    std::size_t posted = 0, through = 0;
    std::size_t offset = 0, moved = 0;
    bool has_header = false;  // of a chunk to be sent
    std::array<std::byte, kHeaderBytes> header{};
    std::array<iovec, 2> pieces{};

    void post(Block block);
    std::size_t chunk() const noexcept;  // bytes of its data
    std::span<iovec> rest() noexcept;
    void finish_chunk();
  };
  void check_header();
  void check_data();

  Way out_, in_;
  std::string problem_;
};

}}}  // namespace c10d::v0::native
