// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/reduction.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

struct Blockwise {
  std::byte* output;
  const std::byte* input;
  Reducing how;
  Blocks blocks;
};

Part own_of(const Collective& collective, const Blockwise& all) {
  return {all.blocks.offset(collective.rank()), all.blocks.bytes(collective.rank())};
}

// All blocks in the entry.
bool inline_shot(Collective& collective, const Blockwise& all) {
  const Reduction whole{
      .input = all.input, .bytes = all.blocks.offset(collective.size()), .how = all.how};
  return inline_slice(collective, whole, own_of(collective, all), all.output);
}

// A slot holds one chunk for every rank, in the order of peer(): each reduces what is for it.
bool one_shot(Collective& collective, const AlgorithmChoice& choice, const Blockwise& all) {
  const int rank = collective.rank();
  const auto ranks = static_cast<std::size_t>(collective.size());
  const StorePolicy results = result_policy(choice, all.blocks.largest());
  const Staging& staging = collective.staging();
  const Chunks chunks = staging.chunk(choice, all.blocks.largest(), ranks);
  const auto stage = [&](std::size_t step) {
    std::byte* const slot = staging.mutual_slot(rank, chunks, step, ranks);
    for (int i = 1; i < collective.size(); ++i) {
      const int peer = collective.peer(i);
      const Part part = part_of(all.blocks.bytes(peer), chunks, step);
      collective.copy_out(slot + static_cast<std::size_t>(i) * chunks.bytes,
                          all.input + all.blocks.offset(peer) + part.first, part.bytes,
                          choice.store);
    }
  };
  const auto take = [&](std::size_t step) {
    const Part part = part_of(all.blocks.bytes(rank), chunks, step);
    const auto sources = collective.sources();
    for (int i = 1; i < collective.size(); ++i) {
      const int peer = collective.peer(i);
      if (!collective.await_staged(peer, step)) return false;
      sources[static_cast<std::size_t>(peer)] =
          staging.mutual_slot(peer, chunks, step, ranks) +
          static_cast<std::size_t>(collective.size() - i) * chunks.bytes;
    }
    sources[static_cast<std::size_t>(rank)] = all.input + all.blocks.offset(rank) + part.first;
    if (part.bytes != 0)
      collective.reduce_out(all.how, all.output + part.first, part.bytes, results);
    return true;
  };
  return run_steps(collective, {.steps = chunks.count}, stage, take);
}

// Each rank reads its block of every input.
bool pull(Collective& collective, const AlgorithmChoice& choice, const Blockwise& all) {
  const Reduction reduction{.input = all.input, .how = all.how};
  return pull_slice(collective, choice, reduction, own_of(collective, all), all.output) &&
         collective.leave();
}

bool reduce_blocks(Collective& collective, OpKind kind, const View& output, const ConstView& input,
                   ReduceOp op, const Blocks& blocks) {
  const Blockwise all{bytes_of(output), bytes_of(input), {input.dtype, op}, blocks};
  if (input.bytes() <= kInlineBytes) return inline_shot(collective, all);
  const auto ranks = static_cast<std::size_t>(collective.size());
  const AlgorithmChoice* const choice = collective.choose(
      kind, input.dtype, blocks.largest() * ranks, {input.data, input.bytes(), nullptr, 0});
  if (choice == nullptr) return false;
  return is_direct(choice->algorithm) ? pull(collective, *choice, all)
                                      : one_shot(collective, *choice, all);
}

}  // namespace

bool run(Collective& collective, const ReduceScatter& op) {
  return reduce_blocks(collective, OpKind::reduce_scatter, op.output, op.input, op.op,
                       {op.output.count, size_of(op.input.dtype)});
}

bool run(Collective& collective, const ReduceScatterV& op) {
  return reduce_blocks(collective, OpKind::reduce_scatter_v, op.output, op.input, op.op,
                       {op.counts, size_of(op.input.dtype)});
}

}}}  // namespace c10d::v0::native
