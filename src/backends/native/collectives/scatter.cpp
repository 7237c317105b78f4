// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

struct Scattering {
  std::byte* output;
  const std::byte* input;
  int root;
  Blocks blocks;
};

// All blocks in the root's entry.
bool inline_shot(Round& round, const Scattering& all) {
  const int rank = round.rank();
  const std::size_t offset = all.blocks.offset(rank), bytes = all.blocks.bytes(rank);
  if (rank == all.root) copy_bytes(round.payload(rank), all.input, all.blocks.offset(round.size()));
  if (!round.enter()) return false;
  copy_bytes(all.output, (rank == all.root ? all.input : round.payload(all.root)) + offset, bytes);
  return true;
}

// A slot holds one piece for every rank.
bool one_shot(Round& round, const Choice& choice, const Scattering& all) {
  const int rank = round.rank();
  const auto ranks = static_cast<std::size_t>(round.size());
  const StorePolicy results = result_policy(choice, all.blocks.largest());
  const Pieces pieces = round.cut_one_way(choice, all.blocks.largest(), rank == all.root, ranks);
  const auto stage = [&](std::size_t step) {
    std::byte* const slot = round.slot(all.root, pieces, step, ranks);
    for (int i = 0; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(all.blocks.bytes(peer), pieces, step);
      const std::byte* const from = all.input + all.blocks.offset(peer) + part.first;
      if (i == 0)
        round.copy_out(all.output + part.first, from, part.bytes, results);
      else
        round.copy_out(slot + static_cast<std::size_t>(peer) * pieces.bytes, from, part.bytes,
                       choice.store);
    }
  };
  const auto take = [&](std::size_t step) {
    if (!round.await_staged(all.root, step)) return false;
    const Part part = part_of(all.blocks.bytes(rank), pieces, step);
    round.copy_out(
        all.output + part.first,
        round.slot(all.root, pieces, step, ranks) + static_cast<std::size_t>(rank) * pieces.bytes,
        part.bytes, results);
    return true;
  };
  const bool is_root = rank == all.root;
  return run_steps(round, {.steps = pieces.count, .stages = is_root, .takes = !is_root}, stage,
                   take);
}

// Every rank fetches its block.
bool pull(Round& round, const Choice& choice, const Scattering& all) {
  const int rank = round.rank();
  const std::size_t offset = all.blocks.offset(rank), bytes = all.blocks.bytes(rank);
  if (rank == all.root) {
    round.copy_out(all.output, all.input + offset, bytes, choice.store);
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      if (!round.help(peer, all.input + all.blocks.offset(peer), all.blocks.bytes(peer)))
        return false;
    }
    return round.await_all(&Progress::consumed, 1);
  }
  round.invite(all.root, all.output, bytes);
  if (!round.fetch(all.root, Side::input, offset, all.output, bytes, choice.store)) return false;
  round.publish(&Progress::consumed, 1);
  return true;
}

// The root writes every block into the output of its rank.
bool push(Round& round, const Choice& choice, const Scattering& all) {
  if (round.rank() != all.root) return round.await(all.root, &Progress::consumed, 1);
  for (int i = 1; i < round.size(); ++i) {
    const int peer = round.peer(i);
    if (!round.hand_out(peer, 0, all.input + all.blocks.offset(peer), all.blocks.bytes(peer),
                        choice.store))
      return false;
  }
  round.publish(&Progress::consumed, 1);
  round.copy_out(all.output, all.input + all.blocks.offset(all.root), all.blocks.bytes(all.root),
                 choice.store);
  return true;
}

bool hand_out(Round& round, OpKind kind, const Tensor& output, const ConstTensor& input, int root,
              const Blocks& blocks) {
  const Scattering all{bytes_of(output), bytes_of(input), root, blocks};
  const bool is_root = round.rank() == root;
  const auto ranks = static_cast<std::size_t>(round.size());
  if (blocks.largest() * ranks <= kInlineBytes) return inline_shot(round, all);
  const Choice* const choice =
      round.choose(kind, output.dtype, blocks.largest() * ranks,
                   {is_root ? input.data : nullptr, is_root ? input.bytes() : 0,
                    is_root ? nullptr : output.data, is_root ? 0 : output.bytes()});
  if (choice == nullptr) return false;
  switch (choice->algorithm) {
    case Algorithm::pull:
      return pull(round, *choice, all);
    case Algorithm::push:
      return push(round, *choice, all);
    default:
      return one_shot(round, *choice, all);
  }
}

}  // namespace

bool run(Round& round, const Scatter& op) {
  return hand_out(round, OpKind::scatter, op.output, op.input, op.root,
                  {op.output.count, size_of(op.output.dtype)});
}

bool run(Round& round, const ScatterV& op) {
  return hand_out(round, OpKind::scatter_v, op.output, op.input, op.root,
                  {op.counts, size_of(op.output.dtype)});
}

}}}  // namespace c10d::v0::native
