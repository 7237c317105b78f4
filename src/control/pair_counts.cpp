// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/pair_counts.h"

#include <cstring>

#include "src/base/hash.h"

namespace c10d { inline namespace v0 {
namespace {

static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));

std::uint64_t hash_of_pairs(std::span<const std::size_t> counts, int rank, bool sends) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t peer = 0; peer < counts.size(); ++peer) {
    const auto own = static_cast<std::uint64_t>(rank);
    sum += mix(mix(sends ? own : peer, sends ? peer : own), counts[peer]);
  }
  return sum;
}

}  // namespace

std::uint64_t hash_of_sent(std::span<const std::size_t> input_counts, int rank) noexcept {
  return hash_of_pairs(input_counts, rank, true);
}

std::uint64_t hash_of_expected(std::span<const std::size_t> output_counts, int rank) noexcept {
  return hash_of_pairs(output_counts, rank, false);
}

std::uint64_t balance_of(const AllToAllV& op, int rank) noexcept {
  return hash_of_sent(op.input_counts, rank) - hash_of_expected(op.output_counts, rank);
}

std::string to_bytes(const AllToAllV& op) {
  std::string bytes;
  for (const auto& counts : {op.input_counts, op.output_counts})
    bytes.append(reinterpret_cast<const char*>(counts.data()), counts.size_bytes());
  return bytes;
}

std::optional<PairCounts> read_pair_counts(std::string_view bytes, int size) {
  const std::size_t half = static_cast<std::size_t>(size) * sizeof(std::uint64_t);
  if (bytes.size() != 2 * half) return {};
  PairCounts counts;
  for (auto* const side : {&counts.sent, &counts.expected}) {
    side->resize(static_cast<std::size_t>(size));
    std::memcpy(side->data(), bytes.data(), half);
    bytes.remove_prefix(half);
  }
  return counts;
}

std::optional<Misfit> first_misfit(const std::vector<PairCounts>& by_rank) {
  for (std::size_t from = 0; from < by_rank.size(); ++from)
    for (std::size_t to = 0; to < by_rank.size(); ++to) {
      const std::uint64_t sent = by_rank[from].sent[to], expected = by_rank[to].expected[from];
      if (sent != expected)
        return Misfit{static_cast<int>(from), static_cast<int>(to), sent, expected};
    }
  return {};
}

}}  // namespace c10d::v0
