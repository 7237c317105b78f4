// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "c10d/capability.h"
#include "c10d/export.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

// The address of this host at which members on other hosts reach it: that on the first network of
// C10D_NET_INTERFACE, else the one that leads to the host which serves `store`, else to those of
// `members`. Throws DistNetworkError (unreachable) when this host lacks one of those networks.
C10D_API std::string own_address(Store& store, const std::vector<Member>& members);

}}  // namespace c10d::v0
