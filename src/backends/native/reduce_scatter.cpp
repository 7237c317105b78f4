// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/reduce.h"
#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {
namespace {

// A slot holds one piece for every rank; each rank reduces the pieces that are for it.
bool reduce_blocks(Round& round, const Tensor& output, const ConstTensor& input, ReduceOp op,
                   const Blocks& blocks) {
  const int rank = round.rank();
  const auto ranks = static_cast<std::size_t>(round.size());
  const Pieces pieces = round.cut(blocks.largest(), ranks);
  const auto stage = [&](std::size_t step) {
    std::byte* const slot = round.slot(rank, pieces, step, ranks);
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(blocks.bytes(peer), pieces, step);
      copy_bytes(slot + static_cast<std::size_t>(peer) * pieces.bytes,
                 bytes_of(input) + blocks.offset(peer) + part.first, part.bytes);
    }
  };
  const auto take = [&](std::size_t step) {
    const Part part = part_of(blocks.bytes(rank), pieces, step);
    const auto sources = round.sources();
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      if (!round.await_staged(peer, step)) return false;
      sources[static_cast<std::size_t>(peer)] =
          round.slot(peer, pieces, step, ranks) + static_cast<std::size_t>(rank) * pieces.bytes;
    }
    sources[static_cast<std::size_t>(rank)] = bytes_of(input) + blocks.offset(rank) + part.first;
    if (part.bytes != 0)
      reduce(input.dtype, op, bytes_of(output) + part.first, sources,
             part.bytes / size_of(input.dtype));
    return true;
  };
  return run_steps(round, {.steps = pieces.count}, stage, take);
}

}  // namespace

bool run(Round& round, const ReduceScatter& op) {
  return reduce_blocks(round, op.output, op.input, op.op,
                       {op.output.count, size_of(op.input.dtype)});
}

bool run(Round& round, const ReduceScatterV& op) {
  return reduce_blocks(round, op.output, op.input, op.op, {op.counts, size_of(op.input.dtype)});
}

}  // namespace c10d::inline v0::native
