// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace c10d::bench {

inline constexpr int kNoisy = 5;        // --strict, and a difference could not be told
inline constexpr int kNothingRan = 77;  // every case was skipped, as automake and Meson say it

}  // namespace c10d::bench
