// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "c10d/error.h"
#include "src/recorder/signature.h"
#include "src/sync/agreement.h"

namespace c10d { inline namespace v0 {

// The memory that holds the blocks, as /proc/PID/fd shows it.
inline constexpr std::string_view kControlMemory = "c10d-control";

// The layout of the control plane's memory: a GroupHeader, then one RankBlock per rank, which only
// that rank writes, except where said. A group on one host has one shared mapping, which outlives a
// SIGKILL of its writer; in a group on several hosts each rank has a mapping of its own. Another
// program can read it: snapshot.h.

enum class Presence : std::uint32_t { absent, joined, left };

// One op in the recorder: eight words, so that any thread or process may read while the owner
// writes.
struct Record {
  // `count`: the signature's; of an op with a count for each rank, this rank's own.
  // `counts`: the signature's; of a send or recv, its number among those with this peer.
  // `what`: its State, the OpKind, the DType and the ReduceOp::Kind, a byte each, the last with the
  // DeviceType in its highest bit; then in four bytes how many microseconds the program had kept
  // the call back, and one; 0: it did not say.
  enum Word { sequence, count, root_tag, counts, factor, start_ns, end_ns, what };
  enum State : std::uint8_t { empty, running, ok, failed };
  std::array<std::atomic<std::uint64_t>, 8> words;
};
static_assert(sizeof(Record) == 64);
inline constexpr std::size_t kRecords = 1024;  // per rank and group: 64 KiB

// A call as announced for agreement. Two per rank, by parity of the sequence: a rank leads by at
// most one call, because agreement on call k needs every rank to have entered k.
struct alignas(128) CallSlot {
  std::atomic<std::uint64_t> sequence;  // stored last
  std::atomic<std::uint64_t> compared;  // of an all_to_all_v: the counts of all peers fit mine
  Signature signature;
  std::uint64_t hash;
};

// A collective of a group with a GPU, as announced to be compared behind. A rank leads by as many
// calls as there are slots, because it waits until all ranks have compared the call whose slot it
// takes.
struct alignas(64) AnnouncedSlot {
  std::atomic<std::uint64_t> sequence;  // stored last
  std::uint64_t hash;
  Signature signature;
  // Of an all_to_all_v, a hash of all counts that this rank sends, and of all that it expects:
  // those of all ranks together are equal if every pair fits.
  std::uint64_t sends, expects;
};
inline constexpr std::size_t kAnnounced = 64;

// A call that ranks of a group make together and that is no op.
enum class GroupCallKind : std::uint32_t { none, new_group, split, allocate };
constexpr std::string_view to_string(GroupCallKind kind) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"none", "new_group", "split", "allocate"};
  return kNames[static_cast<std::size_t>(kind) % kNames.size()];
}

// What all ranks pass together or none does: calls and monitored barriers, each in their order.
enum class Gate : std::uint8_t { calls, barriers };
inline constexpr std::size_t kGates = 2;

struct alignas(128) RankBlock {
  // Written once, before `presence`.
  std::int64_t pid;
  char host[64];
  std::atomic<Presence> presence;
  // Held by the rank's process as long as it lives. A peer that can lock it knows that the process
  // is gone, even while the kernel still takes its memory apart.
  pthread_mutex_t alive;

  alignas(128) std::atomic<std::uint64_t> submitted;   // sequence of the last collective that
                                                       // entered the funnel
  std::atomic<std::uint64_t> finished;                 // of the last that left it
  std::atomic<std::uint64_t> pending;                  // async ops that are not over
  std::atomic<std::uint64_t> barriers;                 // monitored barriers entered
  std::atomic<std::uint64_t> gone[kGates];             // the last that it went into
  std::atomic<GroupCallKind> group_call;               // in which the rank is, if in any
  alignas(64) std::atomic<std::int64_t> heartbeat_ns;  // when the monitor last ran

  CallSlot calls[2];
  AnnouncedSlot announced[kAnnounced];  // by the sequence, modulo
  std::atomic<std::uint64_t> compared;  // with all ranks: its collectives up to this sequence
  Doorbell doorbell;  // rung after `presence`, `barriers` and the sequence of a call have changed
  alignas(128) std::atomic<std::uint64_t> next_record;
  Record records[kRecords];
};

// The first failure of the group, as it lies in memory.
struct SharedFailure {
  Code code;
  std::int32_t rank;
  std::int64_t pid;
  std::uint64_t sequence;
  char host[64];
  char op[32];
  char message[8064];  // room to name every rank of a large group
};

struct alignas(128) GroupHeader {
  static constexpr std::uint64_t kMagic = 0x34'64'72'63'64'30'31'63u;  // of this layout
  enum State : std::uint32_t { intact, breaking, broken };
  std::atomic<std::uint64_t> magic;  // after the words up to `state`, which do not change
  std::int32_t size;
  std::int32_t first_rank, ranks;  // whose blocks follow
  char group[256];
  // The rank that moves it from intact to breaking writes `cause`.
  std::atomic<std::uint32_t> state;
  BasicGate<HostMemory> gates[kGates];
  alignas(128) SharedFailure cause;
};

inline RankBlock* blocks_of(GroupHeader& header) noexcept {
  return reinterpret_cast<RankBlock*>(&header + 1);
}
inline const RankBlock* blocks_of(const GroupHeader& header) noexcept {
  return reinterpret_cast<const RankBlock*>(&header + 1);
}

void write_header(GroupHeader& header, std::string_view group, int size, int first_rank,
                  int ranks) noexcept;
// Breaks the group, unless it is broken.
void write_cause(GroupHeader& header, const Failure& failure) noexcept;
// What broke it; waits a moment for a rank that is writing it.
Failure read_cause(const GroupHeader& header);
// That the block is this process's.
void write_identity(RankBlock& block) noexcept;

// Text that another process wrote: it may lack its end.
template <std::size_t N>
std::string read_text(const char (&from)[N]) {
  const std::string_view all(from, N);
  return std::string(all.substr(0, all.find('\0')));
}

}}  // namespace c10d::v0
