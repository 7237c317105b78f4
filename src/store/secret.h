// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "c10d/call.h"
#include "c10d/export.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

// What the ranks of a group prove to each other that they know: the token of the job. Without one,
// whoever can read the group's store may be a rank of it. Throws what the store throws.
C10D_API std::string secret_of(Store& store, const std::string& token, Deadline deadline);

}}  // namespace c10d::v0
