// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "c10d/spi/backend.h"

namespace c10d { inline namespace v0 {

// One backend of two: each call goes to the one that serves the memory of its buffers. Both use the
// Control of the group, so order and agreement are those of the group.
std::unique_ptr<Backend> make_backend_by_device(std::unique_ptr<Backend> host,
                                                std::unique_ptr<Backend> cuda);

}}  // namespace c10d::v0
