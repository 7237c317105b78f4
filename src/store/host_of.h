// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "c10d/store.h"

namespace c10d { inline namespace v0 {

// The name or address of the host that serves a TCP store, also behind prefixes; empty where no
// host does.
std::string host_of(const Store& store);

}}  // namespace c10d::v0
