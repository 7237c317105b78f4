// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

#include "c10d/spi/backend.h"

namespace c10d { inline namespace v0 {

Support native_supports(const Query& query);
// Shared memory that a group of so many ranks takes, divided by their number.
C10D_API std::size_t native_bytes_per_rank(int ranks) noexcept;
// Collective over the group: returns once the ranks of each host share memory, and are connected to
// all others. Throws DistError.
std::unique_ptr<Backend> make_native_backend(BackendContext context);

}}  // namespace c10d::v0
