// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <numeric>

#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

struct Exchange {
  std::byte* output;
  const std::byte* input;
  Blocks from;  // of the output
  Blocks to;    // of the input
  std::size_t largest;
};

void keep_own(Round& round, const Exchange& all, StorePolicy policy) {
  const int rank = round.rank();
  round.copy_out(all.output + all.from.offset(rank), all.input + all.to.offset(rank),
                 all.to.bytes(rank), policy);
}

// All blocks in the entry.
bool inline_shot(Round& round, const AllToAll& op, const Blocks& blocks) {
  const std::size_t own = blocks.offset(round.rank()), bytes = blocks.largest();
  copy_bytes(round.payload(round.rank()), op.input.data, op.input.bytes());
  if (!round.enter()) return false;
  copy_bytes(bytes_of(op.output) + own, bytes_of(op.input) + own, bytes);
  for (int i = 1; i < round.size(); ++i) {
    const int peer = round.peer(i);
    copy_bytes(bytes_of(op.output) + blocks.offset(peer), round.payload(peer) + own, bytes);
  }
  return true;
}

// A slot holds one piece for every rank, in the order of peer(): each rank takes what is for it.
bool one_shot(Round& round, const Choice& choice, const Exchange& all) {
  const int rank = round.rank();
  const auto ranks = static_cast<std::size_t>(round.size());
  const StorePolicy results = result_policy(choice, all.largest);
  const Pieces pieces = round.cut(choice, all.largest, ranks);
  const auto stage = [&](std::size_t step) {
    std::byte* const slot = round.mutual_slot(rank, pieces, step, ranks);
    for (int i = 0; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(all.to.bytes(peer), pieces, step);
      const std::byte* const from = all.input + all.to.offset(peer) + part.first;
      if (i == 0)
        round.copy_out(all.output + all.from.offset(rank) + part.first, from, part.bytes, results);
      else
        round.copy_out(slot + static_cast<std::size_t>(i) * pieces.bytes, from, part.bytes,
                       choice.store);
    }
  };
  const auto take = [&](std::size_t step) {
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      const Part part = part_of(all.from.bytes(peer), pieces, step);
      if (!round.await_staged(peer, step)) return false;
      round.copy_out(all.output + all.from.offset(peer) + part.first,
                     round.mutual_slot(peer, pieces, step, ranks) +
                         static_cast<std::size_t>(round.size() - i) * pieces.bytes,
                     part.bytes, results);
    }
    return true;
  };
  return run_steps(round, {.steps = pieces.count}, stage, take);
}

bool exchange(Round& round, const Choice& choice, const Exchange& all) {
  const int rank = round.rank(), peer = round.peer(1);
  return exchange_blocks(
      round, choice, all.largest, {all.input + all.to.offset(peer), all.to.bytes(peer)},
      {all.output + all.from.offset(peer), all.from.bytes(peer)},
      {all.output + all.from.offset(rank), all.input + all.to.offset(rank), all.to.bytes(rank)});
}

// `theirs(peer)`: where in the peer's input the block for this rank begins, or in its output the
// block from this rank.
template <class Offset>
bool pull(Round& round, const Choice& choice, const Exchange& all, Offset theirs) {
  keep_own(round, all, choice.store);
  for (int i = 1; i < round.size(); ++i) {
    const int peer = round.peer(i);
    if (!round.fetch(peer, Side::input, theirs(peer), all.output + all.from.offset(peer),
                     all.from.bytes(peer), choice.store))
      return false;
  }
  return round.leave();
}

template <class Offset>
bool push(Round& round, const Choice& choice, const Exchange& all, Offset theirs) {
  keep_own(round, all, choice.store);
  for (int i = 1; i < round.size(); ++i) {
    const int peer = round.peer(i);
    if (!round.hand_out(peer, theirs(peer), all.input + all.to.offset(peer), all.to.bytes(peer),
                        choice.store))
      return false;
  }
  return round.leave();
}

template <class T>
Exposed exposed_by(const T& op) {
  return {op.input.data, op.input.bytes(), op.output.data, op.output.bytes()};
}

// What ranks give, in elements: the largest block, and the most that one has for all together.
struct Given {
  std::size_t block = 0;
  std::size_t rank = 0;
};

// Inputs of so many bytes are staged with the counts, before it is known whether all are that
// short.
constexpr std::size_t kStagedWithCounts = 512;

std::byte* early_place(Round& round, int rank) { return round.mutual_slot(rank, {}, 0); }

// Each rank announces what it gives to and takes from every other, and checks all pairs, so that
// all ranks find the same difference first.
bool agree_on_counts(Round& round, const AllToAllV& op, Given& most) {
  const auto ranks = static_cast<std::size_t>(round.size());
  std::uint64_t* const own = round.counts(round.rank());
  std::copy(op.input_counts.begin(), op.input_counts.end(), own);
  std::copy(op.output_counts.begin(), op.output_counts.end(), own + ranks);
  if (op.input.bytes() <= kStagedWithCounts)
    copy_bytes(early_place(round, round.rank()), op.input.data, op.input.bytes());
  if (!round.enter_unstaged(exposed_by(op))) return false;
  for (int giver = 0; giver < round.size(); ++giver) {
    std::size_t sum = 0;
    for (int taker = 0; taker < round.size(); ++taker) {
      const std::uint64_t given = round.counts(giver)[taker];
      const std::uint64_t taken = round.counts(taker)[ranks + static_cast<std::size_t>(giver)];
      most.block = std::max<std::size_t>(most.block, given);
      sum += given;
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
    most.rank = std::max(most.rank, sum);
  }
  return true;
}

// Elements before those of `rank` in a row of counts.
std::size_t before(const std::uint64_t* counts, int rank) {
  return std::accumulate(counts, counts + rank, std::size_t{0});
}

// Every rank has staged its whole input.
bool take_staged_with_counts(Round& round, const Exchange& all, std::size_t element) {
  keep_own(round, all, StorePolicy::temporal);
  for (int i = 1; i < round.size(); ++i) {
    const int peer = round.peer(i);
    copy_bytes(all.output + all.from.offset(peer),
               early_place(round, peer) + before(round.counts(peer), round.rank()) * element,
               all.from.bytes(peer));
  }
  return true;
}

}  // namespace

bool run(Round& round, const AllToAll& op) {
  const auto ranks = static_cast<std::size_t>(round.size());
  const Blocks blocks(op.input.count / ranks, size_of(op.input.dtype));
  if (op.input.bytes() <= kInlineBytes) return inline_shot(round, op, blocks);
  const Exchange all{bytes_of(op.output), bytes_of(op.input), blocks, blocks, blocks.largest()};
  const Choice* const choice =
      round.choose(OpKind::all_to_all, op.input.dtype, op.input.bytes(), exposed_by(op));
  if (choice == nullptr) return false;
  // The same place in every rank's buffer.
  const auto theirs = [&](int) { return blocks.offset(round.rank()); };
  switch (choice->algorithm) {
    case Algorithm::pull:
      return pull(round, *choice, all, theirs);
    case Algorithm::push:
      return push(round, *choice, all, theirs);
    default:
      if (exchanges(*choice, round.size(), all.largest)) return exchange(round, *choice, all);
      return one_shot(round, *choice, all);
  }
}

bool run(Round& round, const AllToAllV& op) {
  Given most;
  if (!agree_on_counts(round, op, most)) return false;
  const std::size_t element = size_of(op.input.dtype);
  const auto ranks = static_cast<std::size_t>(round.size());
  const Exchange all{bytes_of(op.output),
                     bytes_of(op.input),
                     {op.output_counts, element},
                     {op.input_counts, element},
                     most.block * element};
  if (most.rank * element <= kStagedWithCounts) return take_staged_with_counts(round, all, element);
  const Choice& choice =
      round.choose_entered(OpKind::all_to_all_v, op.input.dtype, all.largest * ranks);
  switch (choice.algorithm) {
    case Algorithm::pull:
      return pull(round, choice, all,
                  [&](int peer) { return before(round.counts(peer), round.rank()) * element; });
    case Algorithm::push:
      return push(round, choice, all, [&](int peer) {
        return before(round.counts(peer) + ranks, round.rank()) * element;
      });
    default:
      if (exchanges(choice, round.size(), all.largest)) return exchange(round, choice, all);
      return one_shot(round, choice, all);
  }
}

}}}  // namespace c10d::v0::native
