// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

struct Gathering {
  std::byte* output;
  const std::byte* input;
  int root;
  Blocks blocks;
};

bool inline_shot(Round& round, const Gathering& all) {
  const int rank = round.rank();
  copy_bytes(round.payload(rank), all.input, all.blocks.bytes(rank));
  if (!round.enter()) return false;
  if (rank != all.root) return true;
  copy_bytes(all.output + all.blocks.offset(rank), all.input, all.blocks.bytes(rank));
  for (int i = 1; i < round.size(); ++i) {
    const int peer = round.peer(i);
    copy_bytes(all.output + all.blocks.offset(peer), round.payload(peer), all.blocks.bytes(peer));
  }
  return true;
}

bool one_shot(Round& round, const Choice& choice, const Gathering& all) {
  const int rank = round.rank();
  const bool is_root = rank == all.root;
  const StorePolicy results = result_policy(choice, all.blocks.largest());
  const Pieces pieces = round.cut_one_way(choice, all.blocks.largest(), !is_root);
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(all.blocks.bytes(rank), pieces, step);
    round.copy_out(round.slot(rank, pieces, step), all.input + part.first, part.bytes,
                   choice.store);
  };
  const auto take = [&](std::size_t step) {
    for (int i = 0; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(all.blocks.bytes(peer), pieces, step);
      if (i != 0 && !round.await_staged(peer, step)) return false;
      round.copy_out(all.output + all.blocks.offset(peer) + part.first,
                     i == 0 ? all.input + part.first : round.slot(peer, pieces, step), part.bytes,
                     results);
    }
    return true;
  };
  return run_steps(
      round, {.steps = pieces.count, .stages = !is_root, .takes = is_root, .reader = all.root},
      stage, take);
}

// The root fetches every block.
bool pull(Round& round, const Choice& choice, const Gathering& all) {
  const int rank = round.rank();
  if (rank != all.root)
    return round.help(all.root, all.input, all.blocks.bytes(rank)) &&
           round.await(all.root, &Progress::consumed, 1);
  for (int i = 1; i < round.size(); ++i) {
    const int peer = round.peer(i);
    const std::size_t bytes = all.blocks.bytes(peer);
    std::byte* const to = all.output + all.blocks.offset(peer);
    round.invite(peer, to, bytes);
    if (i == 1)  // while the first peer begins
      round.copy_out(all.output + all.blocks.offset(rank), all.input, all.blocks.bytes(rank),
                     choice.store);
    if (!round.fetch(peer, Side::input, 0, to, bytes, choice.store)) return false;
  }
  round.publish(&Progress::consumed, 1);
  return true;
}

// Every rank writes its block into the root's output.
bool push(Round& round, const Choice& choice, const Gathering& all) {
  const int rank = round.rank();
  if (!round.hand_out(all.root, all.blocks.offset(rank), all.input, all.blocks.bytes(rank),
                      choice.store))
    return false;
  round.publish(&Progress::consumed, 1);
  return rank != all.root || round.await_all(&Progress::consumed, 1);
}

bool collect_on_root(Round& round, OpKind kind, const Tensor& output, const ConstTensor& input,
                     int root, const Blocks& blocks) {
  const Gathering all{bytes_of(output), bytes_of(input), root, blocks};
  if (blocks.largest() <= kInlineBytes) return inline_shot(round, all);
  const bool is_root = round.rank() == root;
  const auto ranks = static_cast<std::size_t>(round.size());
  const Choice* const choice =
      round.choose(kind, input.dtype, blocks.largest() * ranks,
                   {is_root ? nullptr : input.data, is_root ? 0 : input.bytes(),
                    is_root ? output.data : nullptr, is_root ? output.bytes() : 0});
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

bool run(Round& round, const Gather& op) {
  return collect_on_root(round, OpKind::gather, op.output, op.input, op.root,
                         {op.input.count, size_of(op.input.dtype)});
}

bool run(Round& round, const GatherV& op) {
  return collect_on_root(round, OpKind::gather_v, op.output, op.input, op.root,
                         {op.counts, size_of(op.input.dtype)});
}

}}}  // namespace c10d::v0::native
