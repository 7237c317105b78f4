// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/collective.h"

namespace c10d::bench {

// The flight record of a job as values: what C10D_RECORD_DIR and `c10d-info --pid PID --json` give.
// docs/debugging-hangs.md has the layout.

struct RecordedOp {
  std::uint64_t sequence = 0;
  OpKind kind = OpKind::barrier;
  DType dtype = DType::u8;
  ReduceOp::Kind redop = ReduceOp::sum;
  // Elements: of a vector, or of a shard; this rank's own where each rank has a count.
  std::uint64_t count = 0;
  int root = -1;                  // or the peer
  std::uint32_t tag = 0;          // of a message
  std::uint64_t message = 0;      // the how manieth to, or from, its peer; 0: of any rank
  bool ok = false;                // ended well; else it failed, or still ran
  double start = 0;               // seconds on the clock of the host
  std::optional<double> ready{};  // before it: CallOptions::ready_at, if the program gave it
  double end = 0;                 // meaningless while the op ran
};
// Whether both are the same call, as ranks must agree on it.
bool is_same_call(const RecordedOp& a, const RecordedOp& b) noexcept;
// "all_reduce(sum, f32 x 1024)"; "all_gather_v(f32)", where each rank has a count.
std::string text_of(const RecordedOp& op);

struct RecordedRank {
  int rank = 0;
  std::int64_t pid = 0;
  std::string host;
  std::vector<RecordedOp> ops;  // oldest first
};

struct RecordedGroup {
  std::string name;
  int size = 0;
  std::vector<RecordedRank> ranks;  // ascending
};

struct JobRecord {
  std::vector<RecordedGroup> groups;
};

// Limits of what is read. Beyond them, and for what is no record, the functions below throw
// InvalidArgument that names the file and the place in it.
inline constexpr std::size_t kMostRecordBytes = std::size_t{64} << 20;  // of one file
inline constexpr std::size_t kMostRecordFiles = 4096;                   // of one folder
inline constexpr int kMostRecordRanks = 1024;                           // of one group
inline constexpr std::size_t kMostRecordOps = std::size_t{1} << 18;     // of all ranks and groups

// One file's text; `where` names it in errors.
JobRecord parse_job_record(std::string_view text, std::string_view where);
// The files of a folder show the same groups: of each rank, the one that saw it last counts. Groups
// of one name but of other processes are another job, which is an error.
void merge(JobRecord& all, JobRecord more, std::string_view where);
// A file, or a folder with files c10d-record-*.json.
JobRecord read_job_record(const std::string& path);
// Text that parse_job_record() takes.
std::string to_text(const JobRecord& record);

}  // namespace c10d::bench
