// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// A type of this file, so that run_choice() finds the functions of this file.
struct Gathering : BlockMove {};

bool one_shot(Collective& collective, const AlgorithmChoice& choice, const Gathering& all) {
  const int rank = collective.rank();
  const bool is_root = rank == all.root;
  const StorePolicy results = result_policy(choice, all.blocks.largest());
  Staging& staging = collective.staging();
  const Chunks chunks = staging.chunk_one_way(choice, all.blocks.largest(), !is_root);
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(all.blocks.bytes(rank), chunks, step);
    collective.copy_out(staging.slot(rank, chunks, step), all.input + part.first, part.bytes,
                        choice.store);
  };
  const auto take = [&](std::size_t step) {
    for (int i = 0; i < collective.size(); ++i) {
      const int peer = collective.peer(i);
      const Part part = part_of(all.blocks.bytes(peer), chunks, step);
      if (i != 0 && !collective.await_staged(peer, step)) return false;
      collective.copy_out(all.output + all.blocks.offset(peer) + part.first,
                          i == 0 ? all.input + part.first : staging.slot(peer, chunks, step),
                          part.bytes, results);
    }
    return true;
  };
  return run_steps(
      collective, {.steps = chunks.count, .stages = !is_root, .takes = is_root, .reader = all.root},
      stage, take);
}

// The root fetches every block.
bool pull(Collective& collective, const AlgorithmChoice& choice, const Gathering& all) {
  const int rank = collective.rank();
  DirectAccess direct(collective);
  if (rank != all.root)
    return direct.help(all.root, all.input, all.blocks.bytes(rank)) &&
           collective.await(all.root, &Progress::consumed, 1);
  for (int i = 1; i < collective.size(); ++i) {
    const int peer = collective.peer(i);
    const std::size_t bytes = all.blocks.bytes(peer);
    std::byte* const to = all.output + all.blocks.offset(peer);
    direct.invite(peer, to, bytes);
    if (i == 1)  // while the first peer begins
      collective.copy_out(all.output + all.blocks.offset(rank), all.input, all.blocks.bytes(rank),
                          choice.store);
    if (!direct.fetch(peer, Side::input, 0, to, bytes, choice.store)) return false;
  }
  collective.publish(&Progress::consumed, 1);
  return true;
}

// Every rank writes its block into the root's output.
bool push(Collective& collective, const AlgorithmChoice& choice, const Gathering& all) {
  const int rank = collective.rank();
  if (!DirectAccess(collective)
           .write_to_peer(all.root, all.blocks.offset(rank), all.input, all.blocks.bytes(rank),
                          choice.store))
    return false;
  collective.publish(&Progress::consumed, 1);
  return rank != all.root || collective.await_all(&Progress::consumed, 1);
}

template <class T>
bool gather_blocks(Collective& collective, OpKind kind, const T& op, const Blocks& blocks) {
  const Gathering all{{bytes_of(op.output), bytes_of(op.input), blocks, op.root}};
  if (blocks.largest() <= kInlineBytes) return gather_inline(collective, all);
  const bool sends = collective.rank() != op.root;
  return run_blocks(collective, kind, op.input.dtype, one_way_buffers(sends, op.input, op.output),
                    all);
}

}  // namespace

bool run(Collective& collective, const Gather& op) {
  return gather_blocks(collective, OpKind::gather, op, {op.input.count, size_of(op.input.dtype)});
}

bool run(Collective& collective, const GatherV& op) {
  return gather_blocks(collective, OpKind::gather_v, op, {op.counts, size_of(op.input.dtype)});
}

}}}  // namespace c10d::v0::native
