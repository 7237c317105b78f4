// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/model/cases.h"
#include "c10d/view.h"

namespace c10d::bench {

// The data of a benchmark: every element follows from (seed, rank, index), and is a whole number
// small enough that every reduction is exact in every dtype, so that results are compared for
// equality.
class Oracle {
 public:
  Oracle(const Case& c, int ranks, std::uint64_t seed);

  // Factor of premul_sum: a power of two, so that the product is exact.
  static constexpr double kFactor = 0.5;

  // Writes elements [first, first + buffer.count) of the input of `rank`.
  void fill(View buffer, int rank, std::uint64_t first) const;
  // How many elements of `output` differ from what the op gives when `rank` calls it. Elements of
  // the output are those of the whole op, in place or not; a rank without an output passes an empty
  // view.
  std::uint64_t wrong(ConstView output, int rank) const;

 private:
  struct Source {  // where a run of output elements comes from
    int rank;
    std::uint64_t first;
  };
  // Of the reduction over ranks 0 to ranks - 1.
  std::uint64_t wrong_reduced(ConstView output, std::uint64_t first, int ranks) const;
  std::uint64_t wrong_moved(ConstView output, Source source) const;
  std::uint64_t wrong_exchanged(ConstView output, int rank) const;
  // The values of `rank` at [first, first + count) into `values`.
  void values(int rank, std::uint64_t first, std::size_t count, std::int32_t* values) const;

  Case case_;
  int ranks_;
  std::uint32_t seed_;
};

// Fills memory with a pattern that no op yields, so that a result that was never written is seen.
void poison(View buffer);

// A hash of the bytes; equal results have equal hashes on every rank, launch and backend.
std::uint64_t hash_bytes(const void* data, std::size_t bytes);

}  // namespace c10d::bench
