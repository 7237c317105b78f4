// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/control.h"
#include "src/recorder/signature.h"

namespace c10d { inline namespace v0 {

// A call as it is announced through a store.
struct AnnouncedCall {
  std::uint64_t sequence = 0;
  std::uint64_t hash = 0;
  Signature signature;
  // Of an all_to_all_v, by rank: what this one sends to it, and what it expects from it. So every
  // rank can compare all counts, and all come to the same end.
  std::vector<std::uint64_t> sends, expects;
};

std::string to_bytes(const Call& call, const Signature& signature);
// Null when the bytes are not such a call. Both sides are of one version and byte order: the
// bootstrap has checked.
std::optional<AnnouncedCall> read_announced(std::string_view bytes, int size);

// What one rank sends another, and that one expects.
struct Misfit {
  int sender, receiver;
  std::uint64_t sent, expected;
};
// The first of an all_to_all_v, as all ranks have announced it.
std::optional<Misfit> first_misfit(const std::vector<AnnouncedCall>& by_rank);

}}  // namespace c10d::v0
