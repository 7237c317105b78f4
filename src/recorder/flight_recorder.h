// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "c10d/spi/control.h"
#include "src/base/clock.h"
#include "src/recorder/rank_block.h"

namespace c10d { inline namespace v0 {

// What the record of a call has beside its signature: ranks need not agree on it.
struct CallDetails {
  std::uint64_t own_count = 0;           // this rank's, of an op with a count for each rank
  std::uint64_t message = 0;             // the how manieth send to, or recv from, its peer it is
  std::optional<std::int64_t> ready_ns;  // CallOptions::ready_at; read back in microseconds
};
// Of a call with valid arguments.
CallDetails details_of(const Op& op, int rank, const std::optional<Deadline>& ready_at) noexcept;

// A record as values.
struct Recorded {
  std::uint64_t sequence;
  Signature signature;
  Record::State state;
  std::int64_t start_ns, end_ns;  // steady clock; a running op's end is its deadline
  CallDetails details;
};

inline constexpr std::int64_t kNoDeadlineNs = std::numeric_limits<std::int64_t>::max();

// The ring of a rank's last ops in its RankBlock. Only the rank itself writes; anybody may read.
// Returns the record's number for finish_record.
std::uint64_t start_record(RankBlock& block, std::uint64_t sequence, const Signature& signature,
                           std::int64_t now_ns, std::int64_t deadline_ns = kNoDeadlineNs,
                           const CallDetails& details = {}) noexcept;
void finish_record(RankBlock& block, std::uint64_t record, bool ok, std::int64_t now_ns) noexcept;
// Whether an op runs. Cheap enough to be asked often.
bool is_busy(const RankBlock& block) noexcept;

// Calls `visit` on the ring's ops, oldest first.
void visit_records(const RankBlock& block, const std::function<void(const Recorded&)>& visit);
// "all_reduce #57, running for 0.3 s": the last op, "in new_group()", or "nothing yet".
std::string last_op(const RankBlock& block, std::int64_t now_ns);

}}  // namespace c10d::v0
