// SPDX-License-Identifier: BSD-3-Clause
// Groups of calls: each thread has its own.
#pragma once

#include "tests/fake_gpu/nccl/op.h"

namespace fake_nccl {

// One op: at once, or with the group.
Result submit(const std::shared_ptr<Comm>& comm, const Task& task);
// What a communicator has begun besides: waited for at once, or at the end of the group.
Result submit(const std::shared_ptr<Comm>& comm);
// Its ops are over, at once or at the end of the group.
void submit_abort(const std::shared_ptr<Comm>& comm);

void group_start();
Result group_end();
// Ends it without doing anything.
Result group_drop(std::size_t& tasks);
// The group will end with this. Returns it.
Result group_fails(Result result);
// NCCL forgets to end its own group when it refuses to destroy a communicator.
void group_leaks();

}  // namespace fake_nccl
