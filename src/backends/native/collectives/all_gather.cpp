// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

struct Collection {
  std::byte* output;
  const std::byte* input;
  Blocks blocks;
};

bool inline_shot(Round& round, const Collection& all) {
  const int rank = round.rank();
  copy_bytes(round.payload(rank), all.input, all.blocks.bytes(rank));
  if (!round.enter()) return false;
  copy_bytes(all.output + all.blocks.offset(rank), all.input, all.blocks.bytes(rank));
  for (int i = 1; i < round.size(); ++i) {
    const int peer = round.peer(i);
    copy_bytes(all.output + all.blocks.offset(peer), round.payload(peer), all.blocks.bytes(peer));
  }
  return true;
}

bool one_shot(Round& round, const Choice& choice, const Collection& all) {
  const int rank = round.rank();
  const StorePolicy results = result_policy(choice, all.blocks.largest());
  const Pieces pieces = round.cut(choice, all.blocks.largest());
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(all.blocks.bytes(rank), pieces, step);
    const std::byte* const from = all.input + part.first;
    round.copy_out(round.mutual_slot(rank, pieces, step), from, part.bytes, choice.store);
    round.copy_out(all.output + all.blocks.offset(rank) + part.first, from, part.bytes, results);
  };
  const auto take = [&](std::size_t step) {
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(all.blocks.bytes(peer), pieces, step);
      if (!round.await_staged(peer, step)) return false;
      round.copy_out(all.output + all.blocks.offset(peer) + part.first,
                     round.mutual_slot(peer, pieces, step), part.bytes, results);
    }
    return true;
  };
  return run_steps(round, {.steps = pieces.count}, stage, take);
}

bool exchange(Round& round, const Choice& choice, const Collection& all) {
  const int rank = round.rank(), peer = round.peer(1);
  const std::size_t bytes = all.blocks.bytes(rank);
  std::byte* const own = all.output + all.blocks.offset(rank);
  const bool in_place = own == all.input;
  return exchange_blocks(round, choice, all.blocks.largest(), {all.input, bytes},
                         {all.output + all.blocks.offset(peer), all.blocks.bytes(peer)},
                         {own, all.input, in_place ? 0 : bytes});
}

bool pull(Round& round, const Choice& choice, const Collection& all) {
  const int rank = round.rank();
  round.copy_out(all.output + all.blocks.offset(rank), all.input, all.blocks.bytes(rank),
                 choice.store);
  for (int i = 1; i < round.size(); ++i) {
    const int peer = round.peer(i);
    if (!round.fetch(peer, Side::input, 0, all.output + all.blocks.offset(peer),
                     all.blocks.bytes(peer), choice.store))
      return false;
  }
  return round.leave();
}

bool push(Round& round, const Choice& choice, const Collection& all) {
  const int rank = round.rank();
  const std::size_t offset = all.blocks.offset(rank), bytes = all.blocks.bytes(rank);
  round.copy_out(all.output + offset, all.input, bytes, choice.store);
  for (int i = 1; i < round.size(); ++i)
    if (!round.hand_out(round.peer(i), offset, all.input, bytes, choice.store)) return false;
  return round.leave();
}

bool collect(Round& round, OpKind kind, const Tensor& output, const ConstTensor& input,
             const Blocks& blocks) {
  const Collection all{bytes_of(output), bytes_of(input), blocks};
  if (blocks.largest() <= kInlineBytes) return inline_shot(round, all);
  const auto ranks = static_cast<std::size_t>(round.size());
  const Choice* const choice =
      round.choose(kind, output.dtype, blocks.largest() * ranks,
                   {input.data, input.bytes(), output.data, output.bytes()});
  if (choice == nullptr) return false;
  switch (choice->algorithm) {
    case Algorithm::pull:
      return pull(round, *choice, all);
    case Algorithm::push:
      return push(round, *choice, all);
    default:
      if (exchanges(*choice, round.size(), blocks.largest())) return exchange(round, *choice, all);
      return one_shot(round, *choice, all);
  }
}

}  // namespace

bool run(Round& round, const AllGather& op) {
  return collect(round, OpKind::all_gather, op.output, op.input,
                 {op.input.count, size_of(op.input.dtype)});
}

bool run(Round& round, const AllGatherV& op) {
  return collect(round, OpKind::all_gather_v, op.output, op.input,
                 {op.counts, size_of(op.output.dtype)});
}

}}}  // namespace c10d::v0::native
