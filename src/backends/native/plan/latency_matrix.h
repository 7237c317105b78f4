// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace c10d { inline namespace v0 { namespace native {

// Round trips of a flag between every two ranks, in nanoseconds: size x size, symmetric, with zeros
// on the diagonal. Empty: not measured.
struct RoundTrips {
  int size = 0;
  std::vector<std::uint32_t> ns;
  std::uint32_t between(int a, int b) const {
    return ns[static_cast<std::size_t>(a) * static_cast<std::size_t>(size) +
              static_cast<std::size_t>(b)];
  }
};

// The number of its group for every rank: ranks that are about as near to each other as the nearest
// two. Without a measurement all are in one.
std::vector<int> near_groups(const RoundTrips& trips, int size);
// A longer one means that the ranks shared a CPU meanwhile, and is ignored.
inline constexpr std::uint32_t kBelievedNs = 3000;
// A letter for every pair of ranks, near or far: "nf f" for ranks 0 and 1, 0 and 2; 1 and 2. One
// word if all pairs are alike. A pair that was ignored or not measured counts as `far` says.
std::string distances(const RoundTrips& trips, bool far);

// "rtt 0.10-0.42 us, 2 groups"; "rtt 0.30 us, assumed" with `used_us` if every pair was ignored.
// Empty without a measurement.
std::string describe(const RoundTrips& trips, double used_us);

}}}  // namespace c10d::v0::native
