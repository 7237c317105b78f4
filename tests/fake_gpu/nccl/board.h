// SPDX-License-Identifier: BSD-3-Clause
// The memory that the ranks of a communicator share: a file without a name, which the unique id
// says how to find. Who is there, who is gone, and the pieces of what they exchange.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/backends/nccl/nccl.h"

namespace fake_nccl {

namespace nccl = c10d::nccl;

constexpr std::size_t kPieceBytes = 64 << 10;
constexpr int kMostRanks = 64;
constexpr std::size_t kKeptLaunches = 64;

enum Left : std::uint32_t { kIsThere, kHasRevoked, kHasLeft };

// What one rank says.
struct alignas(64) Member {
  std::atomic<std::uint32_t> has_joined;  // the next four are written
  std::int32_t pid, device;
  char host[64];
  std::atomic<std::uint32_t> left;      // a Left
  std::atomic<std::uint32_t> connects;  // to all, for its first collective
  std::atomic<std::uint64_t> windows;   // that it has asked for
  // Communicators made from this one: asked for, named by the first of the new ranks, read by all.
  std::atomic<std::uint64_t> asked, named, read;
  std::int32_t color, key;
  nccl::UniqueId child;
  // In which order its device launched: of the collective number N the order, at N % kKeptLaunches.
  std::atomic<std::uint64_t> launches[kKeptLaunches];
  // Pieces of collectives: the next is at its parity.
  std::atomic<std::uint64_t> arrived;
  std::uint64_t factor[2];
  alignas(64) std::byte piece[2][kPieceBytes];
};

// From one rank to another: one piece at a time.
struct alignas(64) Box {
  std::atomic<std::uint32_t> sender_connects, receiver_connects;
  std::atomic<std::uint64_t> sent, taken;
  std::uint64_t bytes;
  alignas(64) std::byte piece[kPieceBytes];
};

class Board {
 public:
  // A new one, kept open until all ranks have it.
  static bool make(nccl::UniqueId& id);
  // That of the id; the ranks of one process have the same. Null if there is none.
  static std::shared_ptr<Board> open(const nccl::UniqueId& id, int size);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int size() const { return size_; }
  Member& member(int rank) const { return members_[rank]; }
  Box& box(int from, int to) const { return boxes_[from * size_ + to]; }
  bool have_all_joined() const;
  // It does no more ops, or its process has ended.
  bool is_gone(int rank);
  // The same for what one may still do after a revocation.
  bool is_gone_for_good(int rank);
  // Two ranks of one device, as far as NCCL can tell; -1 if there is none.
  int duplicate_of(int rank) const;
  bool has_duplicates() const;

 private:
  Board(void* memory, std::size_t bytes, int size);

  void* const memory_;
  const std::size_t bytes_;
  const int size_;
  Member* members_;
  Box* boxes_;

  std::mutex mutex_;
  std::vector<int> processes_;  // their descriptors, as far as they were asked for
  std::vector<bool> is_dead_;
};

// Of this process, as NCCL_HOSTID says.
std::string host_name();

}  // namespace fake_nccl
