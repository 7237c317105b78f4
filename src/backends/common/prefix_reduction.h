// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <type_traits>

#include "c10d/collective.h"
#include "src/backends/common/gathered_reduction.h"

namespace c10d { inline namespace v0 {

// Of Scan and Exscan: the first rank that has a result.
template <class T>
inline constexpr int kFirstResult = std::is_same_v<T, Exscan> ? 1 : 0;

// How many ranks, from rank 0 on, the result on `rank` is the reduction of.
template <class T>
constexpr int reduced_ranks(int rank) noexcept {
  return rank + 1 - kFirstResult<T>;
}

// The result on `rank`, from the inputs of all ranks, which lie one after the other in `collected`.
// Where there is none, `output` stays as it is.
template <class T>
void reduce_prefix(const T& op, View output, const void* collected, int rank) {
  if (rank >= kFirstResult<T>) reduce_collected(output, collected, reduced_ranks<T>(rank), op.op);
}

// A slice of the results of all ranks, one after the other, from the same slice of their inputs.
template <class T>
void reduce_prefixes(const T& op, View results, const void* collected, int size) {
  const std::size_t own = results.count / static_cast<std::size_t>(size);
  for (int rank = 0; rank < size; ++rank)
    reduce_prefix(op, results.slice(static_cast<std::size_t>(rank) * own, own), collected, rank);
}

}}  // namespace c10d::v0
