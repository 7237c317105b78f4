// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// Reduced, and then copied to where else it belongs while it is in the L1 cache.
constexpr std::size_t kReducedBlock = std::size_t{16} << 10;

bool wants(const Round& round, const Reduction& reduction) {
  return reduction.root == Round::kEveryRank || reduction.root == round.rank();
}

}  // namespace

bool inline_slice(Round& round, const Reduction& reduction, Part slice, std::byte* output) {
  copy_bytes(round.payload(round.rank()), reduction.input, reduction.bytes);
  if (!round.enter()) return false;
  if (slice.bytes == 0) return true;
  const auto sources = round.sources();
  // Not the own payload: whoever looked at it has taken its line away.
  sources[static_cast<std::size_t>(round.rank())] = reduction.input + slice.first;
  for (int i = 1; i < round.size(); ++i)
    sources[static_cast<std::size_t>(round.peer(i))] = round.payload(round.peer(i)) + slice.first;
  round.reduce_out(reduction.how, output, slice.bytes, StorePolicy::temporal);
  return true;
}

bool inline_shot(Round& round, const Reduction& reduction) {
  const Part slice = wants(round, reduction) ? Part{0, reduction.bytes} : Part{};
  return inline_slice(round, reduction, slice, reduction.output);
}

bool one_shot(Round& round, const Choice& choice, const Reduction& reduction) {
  const bool mutual = reduction.root == Round::kEveryRank;
  const Pieces pieces =
      mutual ? round.cut(choice, reduction.bytes)
             : round.cut_one_way(choice, reduction.bytes, reduction.root != round.rank());
  const StorePolicy results = result_policy(choice, reduction.bytes);
  const bool takes = wants(round, reduction);
  const auto slot_of = [&](int rank, std::size_t step) {
    return mutual ? round.mutual_slot(rank, pieces, step) : round.slot(rank, pieces, step);
  };
  const Flow flow{.steps = pieces.count,
                  .stages = reduction.root != round.rank(),
                  .takes = takes,
                  .reader = reduction.root};
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, pieces, step);
    round.copy_out(slot_of(round.rank(), step), reduction.input + part.first, part.bytes,
                   choice.store);
  };
  const auto take = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, pieces, step);
    const auto sources = round.sources();
    sources[static_cast<std::size_t>(round.rank())] = reduction.input + part.first;
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      if (!round.await_staged(peer, step)) return false;
      sources[static_cast<std::size_t>(peer)] = slot_of(peer, step);
    }
    round.reduce_out(reduction.how, reduction.output + part.first, part.bytes, results);
    return true;
  };
  return run_steps(round, flow, stage, take);
}

namespace {

// The steps of two_shot, each over one piece. A slice of the result goes to where its parts came
// from: the slots of the ranks that want it, who collect it from their own. Hence a cache line of a
// slot has two users who hand it to and fro, and its rank owns it again when the next op fills it:
// half as many lines travel as if ranks read each other's results. Ranks that share a CPU want it
// in one slot only: it is written once for all of them, and whoever collects it first brings it
// into the cache for the others.
class TwoShot {
 public:
  TwoShot(Round& round, const Choice& choice, const Reduction& reduction)
      : round_(round),
        choice_(choice),
        reduction_(reduction),
        results_(result_policy(choice, reduction.bytes)),
        pieces_(round.cut(choice, reduction.bytes)),
        shares_(round.team().oversubscribed() && reduction.root == Round::kEveryRank) {}

  bool run() {
    return run_two_shots(
        round_, pieces_.count, wants(round_, reduction_), shares_,
        [&](std::size_t step) { stage(step); }, [&](std::size_t step) { reduce_slice(step); },
        [&](std::size_t step) { collect(step); });
  }

 private:
  // Copies in what others reduce: all but the own slice.
  void stage(std::size_t step) {
    const Part part = part_of(reduction_.bytes, pieces_, step);
    const Part own = share_of(part.bytes, round_.size(), round_.rank());
    const std::size_t after = own.first + own.bytes;
    const std::byte* const input = reduction_.input + part.first;
    std::byte* const slot = round_.slot(round_.rank(), pieces_, step);
    round_.copy_out(slot, input, own.first, choice_.store);
    round_.copy_out(slot + after, input + after, part.bytes - after, choice_.store);
  }

  void reduce_slice(std::size_t step) {
    const Part part = part_of(reduction_.bytes, pieces_, step);
    const Part own = share_of(part.bytes, round_.size(), round_.rank());
    for (std::size_t done = 0; done < own.bytes; done += kReducedBlock)
      reduce_block(step, part.first, own.first + done, std::min(kReducedBlock, own.bytes - done));
  }

  void collect(std::size_t step) {
    const Part part = part_of(reduction_.bytes, pieces_, step);
    for (int i = 1; i < round_.size(); ++i) {
      const int peer = round_.peer(i);
      const Part slice = share_of(part.bytes, round_.size(), peer);
      const std::byte* const from = round_.slot(keeper_of(peer, round_.rank()), pieces_, step);
      round_.copy_out(reduction_.output + part.first + slice.first, from + slice.first, slice.bytes,
                      results_);
    }
  }

  // From whose slot `taker` collects the slice that `owner` reduced: its own, or the one that all
  // on its CPU share.
  int keeper_of(int owner, int taker) const {
    if (!shares_) return taker;
    const std::vector<std::uint32_t>& cpus = round_.team().cpus();
    const auto cpu_of = [&](int rank) { return cpus[static_cast<std::size_t>(rank)]; };
    int keeper = owner;
    do keeper = keeper + 1 < round_.size() ? keeper + 1 : 0;
    while (keeper != taker && cpu_of(keeper) != cpu_of(taker));
    return keeper;
  }

  // `at` in the slots is `first + at` in the buffers.
  void reduce_block(std::size_t step, std::size_t first, std::size_t at, std::size_t bytes) {
    const auto block_of = [&](int peer) { return round_.slot(peer, pieces_, step) + at; };
    const auto sources = round_.sources();
    for (int i = 1; i < round_.size(); ++i)
      sources[static_cast<std::size_t>(round_.peer(i))] = block_of(round_.peer(i));
    sources[static_cast<std::size_t>(round_.rank())] = reduction_.input + first + at;
    std::byte* const output = wants(round_, reduction_) ? reduction_.output + first + at : nullptr;
    if (reduction_.root != Round::kEveryRank) {
      std::byte* const to = output != nullptr ? output : block_of(reduction_.root);
      return round_.reduce_out(reduction_.how, to, bytes,
                               output != nullptr ? results_ : choice_.store);
    }
    std::byte* const result =
        choice_.store == StorePolicy::streaming ? output : block_of(round_.peer(1));
    round_.reduce_out(reduction_.how, result, bytes, StorePolicy::temporal);
    round_.copy_out(output, result, bytes, results_);
    for (int i = 1; i < round_.size(); ++i)
      if (const int peer = round_.peer(i); keeper_of(round_.rank(), peer) == peer)
        round_.copy_out(block_of(peer), result, bytes, choice_.store);
  }

  Round& round_;
  const Choice& choice_;
  const Reduction& reduction_;
  const StorePolicy results_;
  const Pieces pieces_;
  const bool shares_;
};

// Two ranks whose results are streamed. As many lines cross when each reduces all of its result as
// when it reduces a half and collects the other, and one loop does it all: while lines come from
// the other core, the own input comes from memory and results go there.
bool exchange(Round& round, const Choice& choice, const Reduction& reduction) {
  const Pieces pieces = round.cut(choice, reduction.bytes, 2);
  const int peer = round.peer(1);
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, pieces, step);
    round.copy_out(round.exchange_slot(round.rank(), pieces, step), reduction.input + part.first,
                   part.bytes, choice.store);
  };
  const auto take = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, pieces, step);
    const Part next = part_of(reduction.bytes, pieces, step + kSlots);
    std::byte* const slot = round.exchange_slot(peer, pieces, step);
    const auto sources = round.sources();
    sources[static_cast<std::size_t>(round.rank())] = reduction.input + part.first;
    sources[static_cast<std::size_t>(peer)] = slot;
    round.reduce_out(reduction.how, reduction.output + part.first, part.bytes,
                     StorePolicy::streaming,
                     {.to = slot, .from = reduction.input + next.first, .bytes = next.bytes});
  };
  return run_exchange(round, pieces.count, kSlots, stage, take);
}

}  // namespace

bool two_shot(Round& round, const Choice& choice, const Reduction& reduction) {
  if (reduction.root == Round::kEveryRank && exchanges(choice, round.size(), reduction.bytes))
    return exchange(round, choice, reduction);
  return TwoShot(round, choice, reduction).run();
}

bool pull_slice(Round& round, const Choice& choice, const Reduction& reduction, Part slice,
                std::byte* output) {
  const std::size_t block = scratch_block(round);
  const auto sources = round.sources();
  for (std::size_t done = 0; done < slice.bytes; done += block) {
    const std::size_t first = slice.first + done;
    const std::size_t bytes = std::min(block, slice.bytes - done);
    sources[static_cast<std::size_t>(round.rank())] = reduction.input + first;
    std::byte* scratch = round.staging(round.rank());
    for (int i = 1; i < round.size(); ++i, scratch += block) {
      const int peer = round.peer(i);
      const std::byte* const from = round.view(peer, Round::Side::input, first, bytes, scratch);
      if (from == nullptr) return false;
      sources[static_cast<std::size_t>(peer)] = from;
    }
    round.reduce_out(reduction.how, output + done, bytes, choice.store);
  }
  return true;
}

bool push_slices(Round& round, const Choice& choice, const Reduction& reduction) {
  const Part slice = share_of(reduction.bytes, round.size(), round.rank());
  const int first_taker = reduction.root == Round::kEveryRank ? round.rank() : reduction.root;
  const auto sources = round.sources();
  for (std::size_t done = 0; done < slice.bytes; done += kReducedBlock) {
    const std::size_t first = slice.first + done;
    const std::size_t bytes = std::min(kReducedBlock, slice.bytes - done);
    if (!round.stands()) return false;
    for (int peer = 0; peer < round.size(); ++peer)
      sources[static_cast<std::size_t>(peer)] = round.mapped(peer, Side::input) + first;
    std::byte* const result = round.mapped(first_taker, Side::output) + first;
    const bool one_taker = reduction.root != Round::kEveryRank;
    round.reduce_out(reduction.how, result, bytes,
                     one_taker ? choice.store : StorePolicy::temporal);
    for (int i = 1; i < round.size() && !one_taker; ++i)
      round.copy_out(round.mapped(round.peer(i), Side::output) + first, result, bytes,
                     choice.store);
  }
  return round.leave();
}

}}}  // namespace c10d::v0::native
