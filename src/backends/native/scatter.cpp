// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {
namespace {

bool hand_out(Round& round, const Tensor& output, const ConstTensor& input, int root,
              const Blocks& blocks) {
  const int rank = round.rank();
  const bool is_root = rank == root;
  const auto ranks = static_cast<std::size_t>(round.size());
  const Pieces pieces = round.cut(blocks.largest(), ranks);
  const auto stage = [&](std::size_t step) {
    std::byte* const slot = round.slot(root, pieces, step, ranks);
    for (int i = 0; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(blocks.bytes(peer), pieces, step);
      copy_bytes(i == 0 ? bytes_of(output) + part.first
                        : slot + static_cast<std::size_t>(peer) * pieces.bytes,
                 bytes_of(input) + blocks.offset(peer) + part.first, part.bytes);
    }
  };
  const auto take = [&](std::size_t step) {
    if (!round.await_staged(root, step)) return false;
    const Part part = part_of(blocks.bytes(rank), pieces, step);
    copy_bytes(
        bytes_of(output) + part.first,
        round.slot(root, pieces, step, ranks) + static_cast<std::size_t>(rank) * pieces.bytes,
        part.bytes);
    return true;
  };
  return run_steps(round, {.steps = pieces.count, .stages = is_root, .takes = !is_root}, stage,
                   take);
}

}  // namespace

bool run(Round& round, const Scatter& op) {
  return hand_out(round, op.output, op.input, op.root, {op.output.count, size_of(op.output.dtype)});
}

bool run(Round& round, const ScatterV& op) {
  return hand_out(round, op.output, op.input, op.root, {op.counts, size_of(op.output.dtype)});
}

}  // namespace c10d::inline v0::native
