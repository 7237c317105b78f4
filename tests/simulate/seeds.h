// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace c10d { namespace simulate {

// How many seeds are tried: --seeds=N.
inline std::uint64_t seeds = 1000;

// Runs a World of each seed; run() returns what went wrong, or nothing.
template <class World>
void expect_no_problem() {
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    ASSERT_EQ(World(seed).run(), "") << "seed " << seed;
}

// trace() tells two courses of a World apart.
template <class World>
void expect_one_course() {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World first(seed), second(seed);
    first.run();
    second.run();
    EXPECT_EQ(first.trace(), second.trace()) << "seed " << seed;
  }
}

// What main() returns.
inline int run_tests(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string_view option = "--seeds=";
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with(option)) seeds = std::stoull(argv[i] + option.size());
  return RUN_ALL_TESTS();
}

}}  // namespace c10d::simulate
