// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <numeric>

#include "src/backends/common/failures.h"
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

struct Exchange {
  std::byte* output;
  const std::byte* input;
  Blocks from;  // of the output
  Blocks to;    // of the input
  std::size_t largest;
  // Of all_to_all_v: bytes of an element, to find blocks by the peers' counts; else 0.
  std::size_t element = 0;
};

void keep_own(Collective& collective, const Exchange& all, StorePolicy policy) {
  const int rank = collective.rank();
  collective.copy_out(all.output + all.from.offset(rank), all.input + all.to.offset(rank),
                      all.to.bytes(rank), policy);
}

// All blocks in the entry.
bool inline_shot(Collective& collective, const AllToAll& op, const Blocks& blocks) {
  const std::size_t own = blocks.offset(collective.rank()), bytes = blocks.largest();
  copy_bytes(collective.payload(collective.rank()), op.input.data, op.input.bytes());
  if (!collective.enter()) return false;
  copy_bytes(bytes_of(op.output) + own, bytes_of(op.input) + own, bytes);
  for (const int peer : collective.peers())
    copy_bytes(bytes_of(op.output) + blocks.offset(peer), collective.payload(peer) + own, bytes);
  return true;
}

bool exchange(Collective& collective, const AlgorithmChoice& choice, const Exchange& all) {
  const int rank = collective.rank(), peer = collective.peer(1);
  return exchange_blocks(
      collective, choice, all.largest, {all.input + all.to.offset(peer), all.to.bytes(peer)},
      {all.output + all.from.offset(peer), all.from.bytes(peer)},
      {all.output + all.from.offset(rank), all.input + all.to.offset(rank), all.to.bytes(rank)});
}

// A slot holds one chunk for every rank, in the order of peer(): each rank takes what is for it.
bool one_shot(Collective& collective, const AlgorithmChoice& choice, const Exchange& all) {
  if (exchanges(choice, collective.size(), all.largest)) return exchange(collective, choice, all);
  const int rank = collective.rank();
  const auto ranks = static_cast<std::size_t>(collective.size());
  const Staging& staging = collective.staging();
  const StorePolicy results = result_policy(choice, all.largest);
  const Chunks chunks = staging.chunk(choice, all.largest, ranks);
  const auto stage = [&](std::size_t step) {
    std::byte* const slot = staging.mutual_slot(rank, chunks, step, ranks);
    for (int i = 0; i < collective.size(); ++i) {
      const int peer = collective.peer(i);
      const Part part = part_of(all.to.bytes(peer), chunks, step);
      const std::byte* const from = all.input + all.to.offset(peer) + part.first;
      if (i == 0)
        collective.copy_out(all.output + all.from.offset(rank) + part.first, from, part.bytes,
                            results);
      else
        collective.copy_out(slot + static_cast<std::size_t>(i) * chunks.bytes, from, part.bytes,
                            choice.store);
    }
  };
  const auto take = [&](std::size_t step) {
    for (int i = 1; i < collective.size(); ++i) {
      const int peer = collective.peer(i);
      const Part part = part_of(all.from.bytes(peer), chunks, step);
      if (!collective.await_staged(peer, step)) return false;
      collective.copy_out(all.output + all.from.offset(peer) + part.first,
                          staging.mutual_slot(peer, chunks, step, ranks) +
                              static_cast<std::size_t>(collective.size() - i) * chunks.bytes,
                          part.bytes, results);
    }
    return true;
  };
  return run_steps(collective, {.steps = chunks.count}, stage, take);
}

// Elements before those of `rank` in a row of counts.
std::size_t before(const std::uint64_t* counts, int rank) {
  return std::accumulate(counts, counts + rank, std::size_t{0});
}

// Where the block for this rank begins in a peer's input, or the block from it in a peer's output.
std::size_t offset_at(const Collective& collective, const Exchange& all, int peer, Side side) {
  const int rank = collective.rank();
  if (all.element == 0) return all.to.offset(rank);
  const auto row = side == Side::input ? 0 : static_cast<std::size_t>(collective.size());
  return before(collective.counts(peer) + row, rank) * all.element;
}

bool pull(Collective& collective, const AlgorithmChoice& choice, const Exchange& all) {
  keep_own(collective, all, choice.store);
  DirectAccess direct(collective);
  for (const int peer : collective.peers())
    if (!direct.fetch(peer, Side::input, offset_at(collective, all, peer, Side::input),
                      all.output + all.from.offset(peer), all.from.bytes(peer), choice.store))
      return false;
  return collective.leave();
}

bool push(Collective& collective, const AlgorithmChoice& choice, const Exchange& all) {
  keep_own(collective, all, choice.store);
  DirectAccess direct(collective);
  for (const int peer : collective.peers())
    if (!direct.write_to_peer(peer, offset_at(collective, all, peer, Side::output),
                              all.input + all.to.offset(peer), all.to.bytes(peer), choice.store))
      return false;
  return collective.leave();
}

template <class T>
LocalBuffers buffers_of(const T& op) {
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

std::byte* early_place(Collective& collective, int rank) {
  return collective.staging().mutual_slot(rank, {}, 0);
}

// Each rank announces what it gives to and takes from every other, and checks all pairs, so that
// all ranks find the same difference first.
bool agree_on_counts(Collective& collective, const AllToAllV& op, Given& most) {
  const auto ranks = static_cast<std::size_t>(collective.size());
  std::uint64_t* const own = collective.counts(collective.rank());
  std::copy(op.input_counts.begin(), op.input_counts.end(), own);
  std::copy(op.output_counts.begin(), op.output_counts.end(), own + ranks);
  if (op.input.bytes() <= kStagedWithCounts)
    copy_bytes(early_place(collective, collective.rank()), op.input.data, op.input.bytes());
  if (!collective.enter_unstaged(buffers_of(op))) return false;
  for (int sender = 0; sender < collective.size(); ++sender) {
    std::size_t sum = 0;
    for (int receiver = 0; receiver < collective.size(); ++receiver) {
      const std::uint64_t given = collective.counts(sender)[receiver];
      const std::uint64_t taken =
          collective.counts(receiver)[ranks + static_cast<std::size_t>(sender)];
      most.block = std::max<std::size_t>(most.block, given);
      sum += given;
      if (given == taken) continue;
      return collective.fail(failure_in(
          collective.team().context(), collective.call(), Code::mismatch,
          fmt::format("all_to_all_v: rank {} gives {} elements to rank {}, which "
                      "expects {} from it; make input_counts[{}] on rank {} and "
                      "output_counts[{}] on rank {} the same",
                      sender, given, receiver, taken, receiver, sender, sender, receiver),
          sender));
    }
    most.rank = std::max(most.rank, sum);
  }
  return true;
}

// Every rank has staged its whole input.
bool take_staged_with_counts(Collective& collective, const Exchange& all) {
  keep_own(collective, all, StorePolicy::temporal);
  for (const int peer : collective.peers())
    copy_bytes(all.output + all.from.offset(peer),
               early_place(collective, peer) + offset_at(collective, all, peer, Side::input),
               all.from.bytes(peer));
  return true;
}

}  // namespace

bool run(Collective& collective, const AllToAll& op) {
  const auto ranks = static_cast<std::size_t>(collective.size());
  const Blocks blocks(op.input.count / ranks, size_of(op.input.dtype));
  if (op.input.bytes() <= kInlineBytes) return inline_shot(collective, op, blocks);
  const Exchange all{bytes_of(op.output), bytes_of(op.input), blocks, blocks, blocks.largest()};
  return run_choice(
      collective,
      collective.choose(OpKind::all_to_all, op.input.dtype, op.input.bytes(), buffers_of(op)), all);
}

bool run(Collective& collective, const AllToAllV& op) {
  Given most;
  if (!agree_on_counts(collective, op, most)) return false;
  const std::size_t element = size_of(op.input.dtype);
  const auto ranks = static_cast<std::size_t>(collective.size());
  const Exchange all{bytes_of(op.output),        bytes_of(op.input),   {op.output_counts, element},
                     {op.input_counts, element}, most.block * element, element};
  if (most.rank * element <= kStagedWithCounts) return take_staged_with_counts(collective, all);
  return run_choice(
      collective,
      &collective.choose_entered(OpKind::all_to_all_v, op.input.dtype, all.largest * ranks), all);
}

}}}  // namespace c10d::v0::native
