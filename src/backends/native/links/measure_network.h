// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/spi/backend.h"
#include "src/backends/native/links/links.h"
#include "src/backends/native/links/network_profile.h"
#include "src/sync/wait.h"

namespace c10d { inline namespace v0 { namespace native {

// Collective, once the links are there. Rank 0 and `far`, a rank of another host, measure what the
// network between them takes, and rank 0 tells all: what it returns is equal on every rank. That
// takes some 30 ms; in a slow network as long as three messages and 64 KiB each way. Throws the
// failure of the group, link_lost, or timed_out.
NetworkProfile measure_network(const BackendContext& context, int far, Links& links,
                               const WaitPolicy& policy, Deadline deadline);

}}}  // namespace c10d::v0::native
