// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {
namespace {

bool collect_on_root(Round& round, const Tensor& output, const ConstTensor& input, int root,
                     const Blocks& blocks) {
  const int rank = round.rank();
  const bool is_root = rank == root;
  const Pieces pieces = round.cut(blocks.largest());
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(blocks.bytes(rank), pieces, step);
    copy_bytes(round.slot(rank, pieces, step), bytes_of(input) + part.first, part.bytes);
  };
  const auto take = [&](std::size_t step) {
    for (int i = 0; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(blocks.bytes(peer), pieces, step);
      if (i != 0 && !round.await_staged(peer, step)) return false;
      copy_bytes(bytes_of(output) + blocks.offset(peer) + part.first,
                 i == 0 ? bytes_of(input) + part.first : round.slot(peer, pieces, step),
                 part.bytes);
    }
    return true;
  };
  return run_steps(round,
                   {.steps = pieces.count, .stages = !is_root, .takes = is_root, .reader = root},
                   stage, take);
}

}  // namespace

bool run(Round& round, const Gather& op) {
  return collect_on_root(round, op.output, op.input, op.root,
                         {op.input.count, size_of(op.input.dtype)});
}

bool run(Round& round, const GatherV& op) {
  return collect_on_root(round, op.output, op.input, op.root, {op.counts, size_of(op.input.dtype)});
}

}  // namespace c10d::inline v0::native
