// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace c10d::chaos {

// Connections to the store on that port that send what no client sends: noise, half a greeting,
// nothing.
void bother_store(std::uint16_t port, std::uint64_t seed);

}  // namespace c10d::chaos
