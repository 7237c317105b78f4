// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/collective.h"
#include "src/backends/native/collectives/collective.h"
#include "src/backends/native/collectives/staged_steps.h"

// One function per op, each in the file named after it. They return false when the group broke:
// Round::failure() has the cause.
namespace c10d { inline namespace v0 { namespace native {

using Side = Round::Side;

bool run(Round& round, const AllReduce& op);
bool run(Round& round, const Broadcast& op);
bool run(Round& round, const AllGather& op);
bool run(Round& round, const AllGatherV& op);
bool run(Round& round, const ReduceScatter& op);
bool run(Round& round, const ReduceScatterV& op);
bool run(Round& round, const Reduce& op);
bool run(Round& round, const Gather& op);
bool run(Round& round, const GatherV& op);
bool run(Round& round, const Scatter& op);
bool run(Round& round, const ScatterV& op);
bool run(Round& round, const AllToAll& op);
bool run(Round& round, const AllToAllV& op);
bool run(Round& round, const Barrier& op);

// Any of them in a group of one rank.
void run_alone(const Op& op);

// What all_reduce and reduce share; `output` is null where no result goes.
struct Reduction {
  std::byte* output = nullptr;
  const std::byte* input = nullptr;
  std::size_t bytes = 0;
  Reducing how;
  int root = Round::kEveryRank;
};
// All of it in the entry: for kInlineBytes at most.
bool inline_shot(Round& round, const Reduction& reduction);
// The same, but reduces only `slice` of all inputs, to `output`.
bool inline_slice(Round& round, const Reduction& reduction, Part slice, std::byte* output);
// Every rank that wants the result reduces all of it, from all ranks' staging.
bool one_shot(Round& round, const Choice& choice, const Reduction& reduction);
// Every rank reduces one slice of each piece, then those that want the result collect the slices.
// Two ranks that stream what they all want each reduce everything, in one loop.
bool two_shot(Round& round, const Choice& choice, const Reduction& reduction);
// Reduces `slice` of all inputs, wherever they lie, to `output`. Nothing else: it neither tells the
// others nor waits for them.
bool pull_slice(Round& round, const Choice& choice, const Reduction& reduction, Part slice,
                std::byte* output);
// Every rank reduces one slice of all inputs, where they lie in the heap, into every output or that
// of the root. In place is safe: nobody else touches the slice.
bool push_slices(Round& round, const Choice& choice, const Reduction& reduction);

}}}  // namespace c10d::v0::native
