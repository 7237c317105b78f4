// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// A type of this file, so that run_choice() finds the functions of this file.
struct Collection : BlockMove {};

bool exchange(Collective& collective, const AlgorithmChoice& choice, const Collection& all) {
  const int rank = collective.rank(), peer = collective.peer(1);
  const std::size_t bytes = all.blocks.bytes(rank);
  std::byte* const own = all.output + all.blocks.offset(rank);
  const bool in_place = own == all.input;
  return exchange_blocks(collective, choice, all.blocks.largest(), {all.input, bytes},
                         {all.output + all.blocks.offset(peer), all.blocks.bytes(peer)},
                         {own, all.input, in_place ? 0 : bytes});
}

bool one_shot(Collective& collective, const AlgorithmChoice& choice, const Collection& all) {
  if (exchanges(choice, collective.size(), all.blocks.largest()))
    return exchange(collective, choice, all);
  const int rank = collective.rank();
  const StorePolicy results = result_policy(choice, all.blocks.largest());
  const Staging& staging = collective.staging();
  const Chunks chunks = staging.chunk(choice, all.blocks.largest());
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(all.blocks.bytes(rank), chunks, step);
    const std::byte* const from = all.input + part.first;
    collective.copy_out(staging.mutual_slot(rank, chunks, step), from, part.bytes, choice.store);
    collective.copy_out(all.output + all.blocks.offset(rank) + part.first, from, part.bytes,
                        results);
  };
  const auto take = [&](std::size_t step) {
    for (const int peer : collective.peers()) {
      const Part part = part_of(all.blocks.bytes(peer), chunks, step);
      if (!collective.await_staged(peer, step)) return false;
      collective.copy_out(all.output + all.blocks.offset(peer) + part.first,
                          staging.mutual_slot(peer, chunks, step), part.bytes, results);
    }
    return true;
  };
  return run_steps(collective, {.steps = chunks.count}, stage, take);
}

bool pull(Collective& collective, const AlgorithmChoice& choice, const Collection& all) {
  const int rank = collective.rank();
  collective.copy_out(all.output + all.blocks.offset(rank), all.input, all.blocks.bytes(rank),
                      choice.store);
  DirectAccess direct(collective);
  for (const int peer : collective.peers())
    if (!direct.fetch(peer, Side::input, 0, all.output + all.blocks.offset(peer),
                      all.blocks.bytes(peer), choice.store))
      return false;
  return collective.leave();
}

bool push(Collective& collective, const AlgorithmChoice& choice, const Collection& all) {
  const int rank = collective.rank();
  const std::size_t offset = all.blocks.offset(rank), bytes = all.blocks.bytes(rank);
  collective.copy_out(all.output + offset, all.input, bytes, choice.store);
  DirectAccess direct(collective);
  for (const int peer : collective.peers())
    if (!direct.write_to_peer(peer, offset, all.input, bytes, choice.store)) return false;
  return collective.leave();
}

template <class T>
bool gather_all(Collective& collective, OpKind kind, const T& op, const Blocks& blocks) {
  const Collection all{{bytes_of(op.output), bytes_of(op.input), blocks}};
  if (blocks.largest() <= kInlineBytes) return gather_inline(collective, all);
  return run_blocks(collective, kind, op.output.dtype,
                    {op.input.data, op.input.bytes(), op.output.data, op.output.bytes()}, all);
}

}  // namespace

bool run(Collective& collective, const AllGather& op) {
  return gather_all(collective, OpKind::all_gather, op, {op.input.count, size_of(op.input.dtype)});
}

bool run(Collective& collective, const AllGatherV& op) {
  return gather_all(collective, OpKind::all_gather_v, op, {op.counts, size_of(op.output.dtype)});
}

}}}  // namespace c10d::v0::native
