// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "c10d/export.h"
#include "src/recorder/snapshot.h"

namespace c10d { inline namespace v0 {

// Where the ranks of each group are, a line for those that are at the same place: what a person
// wants to know of a job that hangs. Bounded, however many groups and ranks there are.
C10D_API std::string places_of(std::span<const GroupRecord> groups, std::int64_t now_ns);
// The same, and the last `last` ops of each rank.
C10D_API std::string text_of(std::span<const GroupRecord> groups, std::int64_t now_ns,
                             std::size_t last);
// One JSON object; docs/debugging-hangs.md has its fields.
C10D_API std::string json_of(std::span<const GroupRecord> groups, std::int64_t now_ns,
                             std::size_t last);

}}  // namespace c10d::v0
