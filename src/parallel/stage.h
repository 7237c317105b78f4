// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "c10d/tensor.h"

namespace c10d::inline v0::parallel {

// "f32 [64, 3, 3]"
std::string to_text(std::span<const std::int64_t> shape, DType dtype);

// The bytes of a shape; none when it has too many or negative dimensions, or more bytes than
// `limit`.
std::optional<std::size_t> bytes_of(std::span<const std::int64_t> shape, DType dtype,
                                    std::size_t limit);

}  // namespace c10d::inline v0::parallel
