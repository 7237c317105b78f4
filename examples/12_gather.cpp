// SPDX-License-Identifier: BSD-3-Clause
// Rows of a table go to the ranks and come back: scatter_v and gather_v, with a count per rank.
#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>

#include "c10d/init.h"

int main() try {
  auto group = c10d::init_process_group();
  const auto rank = static_cast<std::size_t>(group.rank());
  const auto size = static_cast<std::size_t>(group.size());

  std::vector<std::size_t> counts(size);  // rank r gets r + 1 rows; the same list on every rank
  std::iota(counts.begin(), counts.end(), std::size_t{1});
  std::vector<int> table;  // on rank 0 only
  if (rank == 0) {
    table.resize(size * (size + 1) / 2);
    std::iota(table.begin(), table.end(), 0);
  }
  std::vector<int> mine(counts[rank]);
  group.scatter_v(mine, table, counts, 0);
  for (int& row : mine) row *= 10;
  group.gather_v(table, mine, counts, 0);  // other ranks may pass an empty output

  // With one count for all ranks; all_gather gives the result to every rank.
  const int last = mine.back();
  std::vector<int> last_rows(size);
  group.all_gather(last_rows, std::span(&last, 1));
  std::printf("rank %zu had %zu rows; the last row of the last rank is %d\n", rank, mine.size(),
              last_rows.back());

  for (std::size_t i = 0; i < table.size(); ++i)
    if (table[i] != 10 * static_cast<int>(i)) return 1;
  return last_rows.back() == 10 * static_cast<int>(size * (size + 1) / 2 - 1) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
