// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "c10d/collective.h"
#include "src/backends/native/collectives/collective.h"
#include "src/backends/native/collectives/direct_access.h"
#include "src/backends/native/collectives/queue.h"
#include "src/backends/native/collectives/staged_steps.h"

// One function per op, each in the file named after it (Barrier: collectives.cpp, Exscan:
// scan.cpp). They return false when the group broke: Collective::failure() has the cause.
namespace c10d { inline namespace v0 { namespace native {

bool run(Collective& collective, const AllReduce& op);
bool run(Collective& collective, const Broadcast& op);
bool run(Collective& collective, const AllGather& op);
bool run(Collective& collective, const AllGatherV& op);
bool run(Collective& collective, const ReduceScatter& op);
bool run(Collective& collective, const ReduceScatterV& op);
bool run(Collective& collective, const Reduce& op);
bool run(Collective& collective, const Scan& op);
bool run(Collective& collective, const Exscan& op);
bool run(Collective& collective, const Gather& op);
bool run(Collective& collective, const GatherV& op);
bool run(Collective& collective, const Scatter& op);
bool run(Collective& collective, const ScatterV& op);
bool run(Collective& collective, const AllToAll& op);
bool run(Collective& collective, const AllToAllV& op);
bool run(Collective& collective, const Barrier& op);

// Runs the op of a call from beginning to end; null: it is done. Point-to-point ops never come
// here.
std::shared_ptr<const Failure> execute(Team& team, const Call& call) noexcept;

// Runs the algorithm that the plan chose for `op`: pull(), push() or one_shot() of the op's file,
// found by argument-dependent lookup. Without a choice the group is broken.
template <class T>
bool run_choice(Collective& collective, const AlgorithmChoice* choice, const T& op) {
  if (choice == nullptr) return false;
  switch (choice->algorithm) {
    case Algorithm::pull:
      return pull(collective, *choice, op);
    case Algorithm::push:
      return push(collective, *choice, op);
    default:
      return one_shot(collective, *choice, op);
  }
}

// The same for an op that moves blocks: the plan chooses by the largest of them.
template <class T>
bool run_blocks(Collective& collective, OpKind kind, DType dtype, const LocalBuffers& buffers,
                const T& all) {
  const std::size_t bytes = all.blocks.largest() * static_cast<std::size_t>(collective.size());
  return run_choice(collective, collective.choose(kind, dtype, bytes, buffers), all);
}

}}}  // namespace c10d::v0::native
