// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {
namespace {

bool collect(Round& round, const Tensor& output, const ConstTensor& input, const Blocks& blocks) {
  const int rank = round.rank();
  std::byte* const out = bytes_of(output);
  const bool fits_inline = blocks.largest() <= kInlineBytes;
  if (fits_inline) {
    copy_bytes(round.payload(rank), input.data, blocks.bytes(rank));
    if (!round.enter()) return false;
    copy_bytes(out + blocks.offset(rank), input.data, blocks.bytes(rank));
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      copy_bytes(out + blocks.offset(peer), round.payload(peer), blocks.bytes(peer));
    }
    return true;
  }
  const Pieces pieces = round.cut(blocks.largest());
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(blocks.bytes(rank), pieces, step);
    const std::byte* const from = bytes_of(input) + part.first;
    copy_bytes(round.slot(rank, pieces, step), from, part.bytes);
    copy_bytes(out + blocks.offset(rank) + part.first, from, part.bytes);
  };
  const auto take = [&](std::size_t step) {
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(blocks.bytes(peer), pieces, step);
      if (!round.await_staged(peer, step)) return false;
      copy_bytes(out + blocks.offset(peer) + part.first, round.slot(peer, pieces, step),
                 part.bytes);
    }
    return true;
  };
  return run_steps(round, {.steps = pieces.count}, stage, take);
}

}  // namespace

bool run(Round& round, const AllGather& op) {
  return collect(round, op.output, op.input, {op.input.count, size_of(op.input.dtype)});
}

bool run(Round& round, const AllGatherV& op) {
  return collect(round, op.output, op.input, {op.counts, size_of(op.output.dtype)});
}

}  // namespace c10d::inline v0::native
