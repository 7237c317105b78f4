// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {
namespace {

bool inline_broadcast(Round& round, const Broadcast& op) {
  const bool is_root = round.rank() == op.root;
  if (is_root) copy_bytes(round.payload(op.root), op.input.data, op.output.bytes());
  if (!round.enter()) return false;
  copy_bytes(op.output.data, is_root ? op.input.data : round.payload(op.root), op.output.bytes());
  return true;
}

}  // namespace

bool run(Round& round, const Broadcast& op) {
  const std::size_t bytes = op.output.bytes();
  if (bytes <= kInlineBytes) return inline_broadcast(round, op);
  const Pieces pieces = round.cut(bytes);
  const bool is_root = round.rank() == op.root;
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(bytes, pieces, step);
    const std::byte* const from = bytes_of(op.input) + part.first;
    copy_bytes(round.slot(op.root, pieces, step), from, part.bytes);
    copy_bytes(bytes_of(op.output) + part.first, from, part.bytes);
  };
  const auto take = [&](std::size_t step) {
    if (!round.await_staged(op.root, step)) return false;
    const Part part = part_of(bytes, pieces, step);
    copy_bytes(bytes_of(op.output) + part.first, round.slot(op.root, pieces, step), part.bytes);
    return true;
  };
  return run_steps(round, {.steps = pieces.count, .stages = is_root, .takes = !is_root}, stage,
                   take);
}

}  // namespace c10d::inline v0::native
