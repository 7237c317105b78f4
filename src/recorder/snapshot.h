// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "c10d/error.h"
#include "c10d/export.h"
#include "src/recorder/flight_recorder.h"

namespace c10d { inline namespace v0 {

// What one rank last did, as values.
struct RankRecord {
  int rank = 0;
  std::int64_t pid = 0;
  std::string host;
  bool left = false;                          // the group, in good order
  std::uint64_t submitted = 0, finished = 0;  // sequences of collectives
  std::int64_t heartbeat_ns = 0;              // when its monitor last ran; 0: unknown
  std::vector<Recorded> ops;                  // the ring, oldest first
};

// What the control plane's memory of one group shows: all ranks where they are on one host, else
// those whose memory was read. All text is printable ASCII.
struct GroupRecord {
  std::string group;
  int size = 0;
  std::vector<RankRecord> ranks;  // ascending; without those that have not joined
  std::optional<Failure> failure;
};

// Nothing where the memory holds no group. `image` is aligned like a GroupHeader; it may be another
// process's memory, which changes meanwhile and may hold anything.
std::optional<GroupRecord> read_image(std::span<const std::byte> image);

// The groups of these processes and of all that descend from them, each once, as their memory
// stands now: their state does not matter, they may be stopped, but not have ended. Processes of
// other users, and what cannot be read, are left out. Throws DistBackendError (out_of_resources)
// where the groups' memory is more than 1 GiB together.
C10D_API std::vector<GroupRecord> attach(std::span<const pid_t> processes);

}}  // namespace c10d::v0
