// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {
namespace {

// A slot holds one piece for every rank; each rank takes the pieces that are for it.
bool exchange(Round& round, const Tensor& output, const ConstTensor& input, const Blocks& from,
              const Blocks& to, std::size_t largest) {
  const int rank = round.rank();
  const auto ranks = static_cast<std::size_t>(round.size());
  const Pieces pieces = round.cut(largest, ranks);
  const auto stage = [&](std::size_t step) {
    std::byte* const slot = round.slot(rank, pieces, step, ranks);
    for (int i = 0; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(to.bytes(peer), pieces, step);
      copy_bytes(i == 0 ? bytes_of(output) + from.offset(rank) + part.first
                        : slot + static_cast<std::size_t>(peer) * pieces.bytes,
                 bytes_of(input) + to.offset(peer) + part.first, part.bytes);
    }
  };
  const auto take = [&](std::size_t step) {
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(from.bytes(peer), pieces, step);
      if (!round.await_staged(peer, step)) return false;
      copy_bytes(
          bytes_of(output) + from.offset(peer) + part.first,
          round.slot(peer, pieces, step, ranks) + static_cast<std::size_t>(rank) * pieces.bytes,
          part.bytes);
    }
    return true;
  };
  return run_steps(round, {.steps = pieces.count}, stage, take);
}

// Each rank announces what it gives to and takes from every other, and checks all pairs, so that
// all ranks find the same difference first.
bool agree_on_counts(Round& round, const AllToAllV& op, std::size_t& largest) {
  const auto ranks = static_cast<std::size_t>(round.size());
  std::uint64_t* const own = round.counts(round.rank());
  std::copy(op.input_counts.begin(), op.input_counts.end(), own);
  std::copy(op.output_counts.begin(), op.output_counts.end(), own + ranks);
  if (!round.enter_unstaged()) return false;
  largest = 0;
  for (int giver = 0; giver < round.size(); ++giver)
    for (int taker = 0; taker < round.size(); ++taker) {
      const std::uint64_t given = round.counts(giver)[taker];
      const std::uint64_t taken = round.counts(taker)[ranks + static_cast<std::size_t>(giver)];
      largest = std::max<std::size_t>(largest, given);
      if (given == taken) continue;
      return round.fail(
          {.code = Code::mismatch,
           .message = fmt::format("all_to_all_v: rank {} gives {} elements to rank {}, which "
                                  "expects {} from it; make input_counts[{}] on rank {} and "
                                  "output_counts[{}] on rank {} the same",
                                  giver, given, taker, taken, taker, giver, giver, taker),
           .rank = giver,
           .group = round.team().context().group,
           .op = "all_to_all_v",
           .sequence = round.call().sequence});
    }
  return true;
}

}  // namespace

bool run(Round& round, const AllToAll& op) {
  const std::size_t count = op.input.count / static_cast<std::size_t>(round.size());
  const Blocks blocks(count, size_of(op.input.dtype));
  return exchange(round, op.output, op.input, blocks, blocks, blocks.largest());
}

bool run(Round& round, const AllToAllV& op) {
  std::size_t largest = 0;
  if (!agree_on_counts(round, op, largest)) return false;
  const std::size_t element = size_of(op.input.dtype);
  return exchange(round, op.output, op.input, {op.output_counts, element},
                  {op.input_counts, element}, largest * element);
}

}  // namespace c10d::inline v0::native
