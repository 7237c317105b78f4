// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

struct Blockwise {
  std::byte* output;
  const std::byte* input;
  Reducing how;
  Blocks blocks;
};

Part own_of(const Round& round, const Blockwise& all) {
  return {all.blocks.offset(round.rank()), all.blocks.bytes(round.rank())};
}

// All blocks in the entry.
bool inline_shot(Round& round, const Blockwise& all) {
  const Reduction whole{
      .input = all.input, .bytes = all.blocks.offset(round.size()), .how = all.how};
  return inline_slice(round, whole, own_of(round, all), all.output);
}

// A slot holds one piece for every rank, in the order of peer(): each reduces what is for it.
bool one_shot(Round& round, const Choice& choice, const Blockwise& all) {
  const int rank = round.rank();
  const auto ranks = static_cast<std::size_t>(round.size());
  const StorePolicy results = result_policy(choice, all.blocks.largest());
  const Pieces pieces = round.cut(choice, all.blocks.largest(), ranks);
  const auto stage = [&](std::size_t step) {
    std::byte* const slot = round.mutual_slot(rank, pieces, step, ranks);
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(all.blocks.bytes(peer), pieces, step);
      round.copy_out(slot + static_cast<std::size_t>(i) * pieces.bytes,
                     all.input + all.blocks.offset(peer) + part.first, part.bytes, choice.store);
    }
  };
  const auto take = [&](std::size_t step) {
    const Part part = part_of(all.blocks.bytes(rank), pieces, step);
    const auto sources = round.sources();
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      if (!round.await_staged(peer, step)) return false;
      sources[static_cast<std::size_t>(peer)] =
          round.mutual_slot(peer, pieces, step, ranks) +
          static_cast<std::size_t>(round.size() - i) * pieces.bytes;
    }
    sources[static_cast<std::size_t>(rank)] = all.input + all.blocks.offset(rank) + part.first;
    if (part.bytes != 0) round.reduce_out(all.how, all.output + part.first, part.bytes, results);
    return true;
  };
  return run_steps(round, {.steps = pieces.count}, stage, take);
}

// Each rank reads its block of every input.
bool pull(Round& round, const Choice& choice, const Blockwise& all) {
  const Reduction reduction{.input = all.input, .how = all.how};
  return pull_slice(round, choice, reduction, own_of(round, all), all.output) && round.leave();
}

bool reduce_blocks(Round& round, OpKind kind, const Tensor& output, const ConstTensor& input,
                   ReduceOp op, const Blocks& blocks) {
  const Blockwise all{bytes_of(output), bytes_of(input), {input.dtype, op}, blocks};
  if (input.bytes() <= kInlineBytes) return inline_shot(round, all);
  const auto ranks = static_cast<std::size_t>(round.size());
  const Choice* const choice = round.choose(kind, input.dtype, blocks.largest() * ranks,
                                            {input.data, input.bytes(), nullptr, 0});
  if (choice == nullptr) return false;
  return is_direct(choice->algorithm) ? pull(round, *choice, all) : one_shot(round, *choice, all);
}

}  // namespace

bool run(Round& round, const ReduceScatter& op) {
  return reduce_blocks(round, OpKind::reduce_scatter, op.output, op.input, op.op,
                       {op.output.count, size_of(op.input.dtype)});
}

bool run(Round& round, const ReduceScatterV& op) {
  return reduce_blocks(round, OpKind::reduce_scatter_v, op.output, op.input, op.op,
                       {op.counts, size_of(op.input.dtype)});
}

}}}  // namespace c10d::v0::native
