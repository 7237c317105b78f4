// SPDX-License-Identifier: BSD-3-Clause
// What a reduction of NCCL gives, written a second time: small types by a list of all their values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/backends/nccl/nccl.h"

// Each value is the lowest bytes of a word.
using Words = std::vector<std::uint64_t>;

std::size_t bytes_of(c10d::nccl::DataType dtype);
// A value of the type near to this one.
std::uint64_t word_of(c10d::nccl::DataType dtype, double value);
// Element by element: of each rank a list. `factors`: of each rank, for the sum of products only.
Words reduced(c10d::nccl::DataType dtype, c10d::nccl::RedOp op, const std::vector<Words>& ranks,
              const Words& factors);
constexpr auto kProducts = static_cast<c10d::nccl::RedOp>(100);

std::vector<std::byte> packed(c10d::nccl::DataType dtype, const Words& words);
Words unpacked(c10d::nccl::DataType dtype, const std::vector<std::byte>& bytes);
