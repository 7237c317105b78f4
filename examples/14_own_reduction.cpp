// SPDX-License-Identifier: BSD-3-Clause
// Reductions with a function of yours, on a type of yours: a mean and a variance in one pass, and
// the rank that has the largest value.
#include <cmath>
#include <cstdio>
#include <exception>

#include "c10d/custom_reduce.h"
#include "c10d/init.h"

namespace {

struct Moments {
  double count = 0, mean = 0, squares = 0;  // squares: of the differences from the mean
};
// Associative, as every rank merges along one tree over the ranks: all get the same bits.
Moments merge(const Moments& a, const Moments& b) {
  const double count = a.count + b.count, delta = b.mean - a.mean;
  return {count, a.mean + delta * b.count / count,
          a.squares + b.squares + delta * delta * a.count * b.count / count};
}

}  // namespace

int main() try {
  auto group = c10d::init_process_group();
  const double value = 10.0 * group.rank();

  const Moments all = c10d::all_reduce(group, Moments{1, value, 0}, merge);
  const auto largest = c10d::all_reduce(group, c10d::Located<double>{value, group.rank()},
                                        c10d::MaxLoc());  // MPI_MAXLOC
  std::printf("rank %d: mean %g, deviation %g, the largest is %g on rank %lld\n", group.rank(),
              all.mean, std::sqrt(all.squares / all.count), largest.value,
              static_cast<long long>(largest.location));
  const int last = group.size() - 1;
  return std::fabs(all.mean - 5.0 * last) < 1e-9 && largest.location == last ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
