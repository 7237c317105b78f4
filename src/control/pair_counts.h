// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/collective.h"

namespace c10d { inline namespace v0 {

// The counts of an all_to_all_v: what a rank sends another one, that one must expect.

// What this rank sends in all less what it expects, as hashes of each pair: it adds up to 0 over
// all ranks if every pair fits.
std::uint64_t balance_of(const AllToAllV& op, int rank) noexcept;
// The two halves of it.
std::uint64_t hash_of_sent(std::span<const std::size_t> input_counts, int rank) noexcept;
std::uint64_t hash_of_expected(std::span<const std::size_t> output_counts, int rank) noexcept;

// Those of one rank, by peer.
struct PairCounts {
  std::vector<std::uint64_t> sent, expected;
};
std::string to_bytes(const AllToAllV& op);
// Null when the bytes are not those of a rank among `size`. Both sides are of one version and byte
// order: the bootstrap has checked.
std::optional<PairCounts> read_pair_counts(std::string_view bytes, int size);

// A pair that does not fit.
struct Misfit {
  int sender, receiver;
  std::uint64_t sent, expected;
};
std::optional<Misfit> first_misfit(const std::vector<PairCounts>& by_rank);

}}  // namespace c10d::v0
