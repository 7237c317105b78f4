// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// A type of this file, so that run_choice() finds the functions of this file.
struct Scattering : BlockMove {};

// All blocks in the root's entry.
bool inline_shot(Collective& collective, const Scattering& all) {
  const int rank = collective.rank();
  const std::size_t offset = all.blocks.offset(rank), bytes = all.blocks.bytes(rank);
  if (rank == all.root)
    copy_bytes(collective.payload(rank), all.input, all.blocks.offset(collective.size()));
  if (!collective.enter()) return false;
  copy_bytes(all.output, (rank == all.root ? all.input : collective.payload(all.root)) + offset,
             bytes);
  return true;
}

// A slot holds one chunk for every rank.
bool one_shot(Collective& collective, const AlgorithmChoice& choice, const Scattering& all) {
  const int rank = collective.rank();
  const auto ranks = static_cast<std::size_t>(collective.size());
  const StorePolicy results = result_policy(choice, all.blocks.largest());
  Staging& staging = collective.staging();
  const Chunks chunks =
      staging.chunk_one_way(choice, all.blocks.largest(), rank == all.root, ranks);
  const auto stage = [&](std::size_t step) {
    std::byte* const slot = staging.slot(all.root, chunks, step, ranks);
    for (int i = 0; i < collective.size(); ++i) {
      const int peer = collective.peer(i);
      const Part part = part_of(all.blocks.bytes(peer), chunks, step);
      const std::byte* const from = all.input + all.blocks.offset(peer) + part.first;
      if (i == 0)
        collective.copy_out(all.output + part.first, from, part.bytes, results);
      else
        collective.copy_out(slot + static_cast<std::size_t>(peer) * chunks.bytes, from, part.bytes,
                            choice.store);
    }
  };
  const auto take = [&](std::size_t step) {
    if (!collective.await_staged(all.root, step)) return false;
    const Part part = part_of(all.blocks.bytes(rank), chunks, step);
    collective.copy_out(
        all.output + part.first,
        staging.slot(all.root, chunks, step, ranks) + static_cast<std::size_t>(rank) * chunks.bytes,
        part.bytes, results);
    return true;
  };
  const bool is_root = rank == all.root;
  return run_steps(collective, {.steps = chunks.count, .stages = is_root, .takes = !is_root}, stage,
                   take);
}

// Every rank fetches its block.
bool pull(Collective& collective, const AlgorithmChoice& choice, const Scattering& all) {
  const int rank = collective.rank();
  const std::size_t offset = all.blocks.offset(rank), bytes = all.blocks.bytes(rank);
  DirectAccess direct(collective);
  if (rank == all.root) {
    collective.copy_out(all.output, all.input + offset, bytes, choice.store);
    for (const int peer : collective.peers())
      if (!direct.help(peer, all.input + all.blocks.offset(peer), all.blocks.bytes(peer)))
        return false;
    return collective.await_all(&Progress::consumed, 1);
  }
  direct.invite(all.root, all.output, bytes);
  if (!direct.fetch(all.root, Side::input, offset, all.output, bytes, choice.store)) return false;
  collective.publish(&Progress::consumed, 1);
  return true;
}

// The root writes every block into the output of its rank.
bool push(Collective& collective, const AlgorithmChoice& choice, const Scattering& all) {
  if (collective.rank() != all.root) return collective.await(all.root, &Progress::consumed, 1);
  DirectAccess direct(collective);
  for (const int peer : collective.peers())
    if (!direct.write_to_peer(peer, 0, all.input + all.blocks.offset(peer), all.blocks.bytes(peer),
                              choice.store))
      return false;
  collective.publish(&Progress::consumed, 1);
  collective.copy_out(all.output, all.input + all.blocks.offset(all.root),
                      all.blocks.bytes(all.root), choice.store);
  return true;
}

template <class T>
bool scatter_blocks(Collective& collective, OpKind kind, const T& op, const Blocks& blocks) {
  const Scattering all{{bytes_of(op.output), bytes_of(op.input), blocks, op.root}};
  const auto ranks = static_cast<std::size_t>(collective.size());
  if (blocks.largest() * ranks <= kInlineBytes) return inline_shot(collective, all);
  const bool sends = collective.rank() == op.root;
  return run_blocks(collective, kind, op.output.dtype, one_way_buffers(sends, op.input, op.output),
                    all);
}

}  // namespace

bool run(Collective& collective, const Scatter& op) {
  return scatter_blocks(collective, OpKind::scatter, op,
                        {op.output.count, size_of(op.output.dtype)});
}

bool run(Collective& collective, const ScatterV& op) {
  return scatter_blocks(collective, OpKind::scatter_v, op, {op.counts, size_of(op.output.dtype)});
}

}}}  // namespace c10d::v0::native
