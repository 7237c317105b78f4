// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

namespace c10d::model {

// What a thread has seen of each.
inline constexpr int kMaxThreads = 3;
using Clock = std::array<std::uint8_t, kMaxThreads>;

}  // namespace c10d::model
