// SPDX-License-Identifier: BSD-3-Clause
// The fat binaries that nvcc made, as bytes of the library.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace c10d { inline namespace v0 { namespace cuda_kernels {

struct Images {
  std::span<const std::byte> casts, arithmetic, fold;
  std::string_view why_none;
};
Images images() noexcept;

}}}  // namespace c10d::v0::cuda_kernels
