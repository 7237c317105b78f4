// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/backends/native/memory/cma.h"
#include "src/backends/native/memory/shared_copy.h"
#include "src/backends/native/plan/algorithm_plan.h"
#include "src/sync/wait.h"

// What lies in the memory that the ranks of a group share. All of it starts as zeroes, and every
// word has one writer, except where it says otherwise.
//
//   plan | lines of rank 0..n-1 | counts of rank 0..n-1 | channels n x n
//   | staging of rank 0..n-1 | rings n x n
namespace c10d { inline namespace v0 { namespace native {

inline constexpr std::size_t kInlineBytes = 40;
inline constexpr std::size_t kOffers = 64;  // open at a time, from one rank to another
inline constexpr std::size_t kCpuWords = 16;
inline constexpr int kMeasuredRanks = 32;  // whose round trips are measured

// One rank's entry into one collective: with up to kInlineBytes, all of it in one cache line.
// `registered` is an AccessMode: whether peers access this rank's buffers directly.
struct alignas(128) Entry : BasicEntry<HostMemory> {
  std::byte payload[kInlineBytes];
  std::atomic<std::uint32_t> cpu;  // where ranks share CPUs; of an older op until announced
};
static_assert(sizeof(Entry) == 128);
static_assert(sizeof(BasicEntry<HostMemory>) + kInlineBytes + sizeof(std::uint32_t) <= 64);

// How far one rank is in a collective that goes in steps.
struct alignas(128) Progress {
  using Steps = BasicSteps<HostMemory>;
  Steps staged;    // my data of the step is in my staging
  Steps reduced;   // my slice of the result is where the ranks that want it look
  Steps consumed;  // I need nothing of the step any more
};

// 128 bytes apart: the CPU prefetches cache lines in pairs.
struct alignas(128) RankLines {
  Entry entries[2];  // by parity of the epoch
  Progress progress;
  alignas(128) Doorbell doorbell;              // rung by this rank: flags above
  alignas(128) Doorbell mailbox;               // rung by every rank: channels to and from this rank
  alignas(128) std::uint64_t cpus[kCpuWords];  // this rank's allowed CPUs, as bits
  Identity identity;
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint32_t> last_cpu;   // 1 more than where this rank was last; 0: not known
  std::atomic<std::uint32_t> reads_all;  // 1: this rank reads every peer's memory, 2: it cannot
  alignas(128) std::atomic<std::uint64_t> echo;            // see measure_latency.cpp
  std::atomic<std::uint32_t> round_trips[kMeasuredRanks];  // to each later rank, in nanoseconds
  alignas(128) std::atomic<std::uint32_t> answer;          // to PlanLines::ping
  std::atomic<std::uint64_t> block;                        // where that rank has one to be read
  ShareLines share;                                        // of the collective that runs
  ShareLines message_share;                                // of one recv
};

// Rank 0's, for the start of the group.
struct alignas(128) PlanLines {
  std::atomic<std::uint32_t> ping;                // see Ping
  alignas(128) std::atomic<std::uint32_t> ready;  // the rest is there
  TeamProfile host;
  Plan plan;
};

// Point-to-point from one rank to another, beside their ring. All of it is the receiver's.
struct alignas(128) ChannelLines {
  std::atomic<std::uint64_t> tail;            // bytes ever taken out of the ring
  BasicAnswers<HostMemory, kOffers> answers;  // id << 1 | stream, of offers
};

class Layout {
 public:
  explicit Layout(int size) noexcept;
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t half_bytes() const noexcept { return half_bytes_; }
  std::size_t staging_bytes() const noexcept { return 2 * half_bytes_; }  // per rank
  std::size_t ring_bytes() const noexcept { return ring_bytes_; }         // a power of two

  PlanLines& plan(std::byte* base) const noexcept;
  RankLines& lines(std::byte* base, int rank) const noexcept {
    return reinterpret_cast<RankLines*>(base + lines_)[rank];
  }
  // What `rank` gives (first size()) and takes (the rest) in an all_to_all_v of that parity.
  std::uint64_t* counts(std::byte* base, int rank, unsigned parity) const noexcept;
  ChannelLines& channel(std::byte* base, int from, int to) const noexcept;
  std::byte* ring(std::byte* base, int from, int to) const noexcept;
  std::size_t rings_bytes() const noexcept { return size_ * ring_bytes_; }  // of one sender
  std::byte* staging(std::byte* base, int rank, unsigned parity) const noexcept;

 private:
  std::size_t size_, half_bytes_, ring_bytes_;
  std::size_t lines_, counts_, channels_, staging_, rings_, bytes_;
};

}}}  // namespace c10d::v0::native
