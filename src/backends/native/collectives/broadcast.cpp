// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

bool inline_shot(Round& round, const Broadcast& op) {
  const bool is_root = round.rank() == op.root;
  if (is_root) copy_bytes(round.payload(op.root), op.input.data, op.output.bytes());
  if (!round.enter()) return false;
  copy_bytes(op.output.data, is_root ? op.input.data : round.payload(op.root), op.output.bytes());
  return true;
}

bool one_shot(Round& round, const Choice& choice, const Broadcast& op) {
  const std::size_t bytes = op.output.bytes();
  const bool is_root = round.rank() == op.root;
  const Pieces pieces = round.cut_one_way(choice, bytes, is_root);
  const StorePolicy results = result_policy(choice, bytes);
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(bytes, pieces, step);
    const std::byte* const from = bytes_of(op.input) + part.first;
    round.copy_out(round.slot(op.root, pieces, step), from, part.bytes, choice.store);
    round.copy_out(bytes_of(op.output) + part.first, from, part.bytes, results);
  };
  const auto take = [&](std::size_t step) {
    if (!round.await_staged(op.root, step)) return false;
    const Part part = part_of(bytes, pieces, step);
    round.copy_out(bytes_of(op.output) + part.first, round.slot(op.root, pieces, step), part.bytes,
                   results);
    return true;
  };
  return run_steps(round, {.steps = pieces.count, .stages = is_root, .takes = !is_root}, stage,
                   take);
}

// Every rank fetches the root's input from `first` on; the root copies what is before to them.
bool direct(Round& round, const Choice& choice, const Broadcast& op, std::size_t first) {
  const std::size_t bytes = op.output.bytes();
  if (round.rank() == op.root) {
    for (int i = 1; i < round.size() && first != 0; ++i)
      if (!round.hand_out(round.peer(i), 0, bytes_of(op.input), first, choice.store)) return false;
    round.publish(&Progress::reduced, 1);
    round.copy_out(bytes_of(op.output), bytes_of(op.input), bytes, choice.store);
    for (int i = 1; i < round.size(); ++i)
      if (!round.help(round.peer(i), bytes_of(op.input), bytes)) return false;
    return round.await_all(&Progress::consumed, 1);
  }
  if (first == 0) round.invite(op.root, bytes_of(op.output), bytes);
  if (!round.fetch(op.root, Side::input, first, bytes_of(op.output) + first, bytes - first,
                   choice.store))
    return false;
  round.publish(&Progress::consumed, 1);
  return first == 0 || round.await(op.root, &Progress::reduced, 1);
}

}  // namespace

bool run(Round& round, const Broadcast& op) {
  const std::size_t bytes = op.output.bytes();
  if (bytes <= kInlineBytes) return inline_shot(round, op);
  const bool is_root = round.rank() == op.root;
  const Choice* const choice =
      round.choose(OpKind::broadcast, op.output.dtype, bytes,
                   {is_root ? op.input.data : nullptr, is_root ? bytes : 0,
                    is_root ? nullptr : op.output.data, is_root ? 0 : bytes});
  if (choice == nullptr) return false;
  switch (choice->algorithm) {
    case Algorithm::pull:
      return direct(round, *choice, op, 0);
    // The root takes as much work as each of the others.
    case Algorithm::push:
      return direct(round, *choice, op, share_of(bytes, round.size(), 0).bytes);
    default:
      return one_shot(round, *choice, op);
  }
}

}}}  // namespace c10d::v0::native
