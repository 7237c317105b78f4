// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "tests/conformance/cases.h"

namespace c10d::conformance {

// A run of output elements, and where the op takes them from.
struct Piece {
  std::size_t count = 0;
  int source = 0;         // a rank, or kEveryRank for reduced elements, or kNoRank
  std::size_t first = 0;  // in the input of that rank
  int ranks = 0;          // of reduced elements: of this many ranks from rank 0 on; 0: of all
};
inline constexpr int kEveryRank = -1;
inline constexpr int kNoRank = -2;  // the elements stay as they are

// What one rank brings to a collective and takes away from it.
struct Shape {
  std::size_t input = 0;
  std::size_t output = 0;
  bool may_be_in_place = true;
  std::size_t place = 0;                   // in place: where the smaller buffer lies in the larger
  std::vector<Piece> expected;             // of the output, in its order
  std::vector<std::size_t> counts;         // of the _v ops; of all_to_all_v what goes out
  std::vector<std::size_t> output_counts;  // of all_to_all_v
  bool same_on_all_ranks = false;
};

Shape shape_of(const Case& c, int rank, int ranks);

}  // namespace c10d::conformance
