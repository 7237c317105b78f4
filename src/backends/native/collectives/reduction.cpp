// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/reduction.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// Reduced, and then copied to where else it belongs while it is in the L1 cache.
constexpr std::size_t kReducedBlock = std::size_t{16} << 10;

}  // namespace

bool inline_slice(Collective& collective, const Reduction& reduction, Part slice,
                  std::byte* output) {
  copy_bytes(collective.payload(collective.rank()), reduction.input, reduction.bytes);
  if (!collective.enter()) return false;
  if (slice.bytes == 0) return true;
  const auto sources = collective.sources();
  // Not the own payload: a rank that read it has taken its line away.
  sources[static_cast<std::size_t>(collective.rank())] = reduction.input + slice.first;
  for (const int peer : collective.peers())
    sources[static_cast<std::size_t>(peer)] = collective.payload(peer) + slice.first;
  collective.reduce_out(reduction.how, output, slice.bytes, StorePolicy::temporal);
  return true;
}

bool inline_shot(Collective& collective, const Reduction& reduction) {
  const Part slice = wants_result(collective, reduction) ? Part{0, reduction.bytes} : Part{};
  return inline_slice(collective, reduction, slice, reduction.output);
}

bool one_shot(Collective& collective, const AlgorithmChoice& choice, const Reduction& reduction) {
  const bool mutual = reduction.root == Collective::kEveryRank;
  Staging& staging = collective.staging();
  const Chunks chunks =
      mutual ? staging.chunk(choice, reduction.bytes)
             : staging.chunk_one_way(choice, reduction.bytes, reduction.root != collective.rank());
  const StorePolicy results = result_policy(choice, reduction.bytes);
  const bool takes = wants_result(collective, reduction);
  const auto slot_of = [&](int rank, std::size_t step) {
    return mutual ? staging.mutual_slot(rank, chunks, step) : staging.slot(rank, chunks, step);
  };
  const Flow flow{.steps = chunks.count,
                  .stages = reduction.root != collective.rank(),
                  .takes = takes,
                  .reader = reduction.root};
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, chunks, step);
    collective.copy_out(slot_of(collective.rank(), step), reduction.input + part.first, part.bytes,
                        choice.store);
  };
  const auto take = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, chunks, step);
    const auto sources = collective.sources();
    sources[static_cast<std::size_t>(collective.rank())] = reduction.input + part.first;
    for (const int peer : collective.peers()) {
      if (!collective.await_staged(peer, step)) return false;
      sources[static_cast<std::size_t>(peer)] = slot_of(peer, step);
    }
    collective.reduce_out(reduction.how, reduction.output + part.first, part.bytes, results);
    return true;
  };
  return run_steps(collective, flow, stage, take);
}

namespace {

// The steps of two_shot, each over one chunk. A slice of the result goes to where its parts came
// from: the slots of the ranks that want it, which collect it from their own. Hence a cache line of
// a slot moves between two ranks only, and its rank owns it again when the next op fills it: half
// as many lines travel as if ranks read each other's results. Ranks that share a CPU want it in one
// slot only: it is written once for all of them, and the first rank that collects it brings it into
// the cache for the others.
class TwoShot {
 public:
  TwoShot(Collective& collective, const AlgorithmChoice& choice, const Reduction& reduction)
      : collective_(collective),
        staging_(collective.staging()),
        choice_(choice),
        reduction_(reduction),
        results_(result_policy(choice, reduction.bytes)),
        chunks_(staging_.chunk(choice, reduction.bytes)),
        shares_(collective.team().oversubscribed() && reduction.root == Collective::kEveryRank) {}

  bool run() {
    return run_two_shots(
        collective_, chunks_.count, wants_result(collective_, reduction_), shares_,
        [&](std::size_t step) { stage(step); }, [&](std::size_t step) { reduce_slice(step); },
        [&](std::size_t step) { collect(step); });
  }

 private:
  // Copies in what others reduce: all but the own slice.
  void stage(std::size_t step) {
    const Part part = part_of(reduction_.bytes, chunks_, step);
    const Part own = share_of(part.bytes, collective_.size(), collective_.rank());
    const std::size_t after = own.first + own.bytes;
    const std::byte* const input = reduction_.input + part.first;
    std::byte* const slot = staging_.slot(collective_.rank(), chunks_, step);
    collective_.copy_out(slot, input, own.first, choice_.store);
    collective_.copy_out(slot + after, input + after, part.bytes - after, choice_.store);
  }

  void reduce_slice(std::size_t step) {
    const Part part = part_of(reduction_.bytes, chunks_, step);
    const Part own = share_of(part.bytes, collective_.size(), collective_.rank());
    for (std::size_t done = 0; done < own.bytes; done += kReducedBlock)
      reduce_block(step, part.first, own.first + done, std::min(kReducedBlock, own.bytes - done));
  }

  void collect(std::size_t step) {
    const Part part = part_of(reduction_.bytes, chunks_, step);
    for (const int peer : collective_.peers()) {
      const Part slice = share_of(part.bytes, collective_.size(), peer);
      const std::byte* const from =
          staging_.slot(keeper_of(peer, collective_.rank()), chunks_, step);
      collective_.copy_out(reduction_.output + part.first + slice.first, from + slice.first,
                           slice.bytes, results_);
    }
  }

  // From whose slot `receiver` collects the slice that `owner` reduced: its own, or the one that
  // all on its CPU share.
  int keeper_of(int owner, int receiver) const {
    if (!shares_) return receiver;
    const std::vector<std::uint32_t>& cpus = collective_.team().cpus();
    const auto cpu_of = [&](int rank) { return cpus[static_cast<std::size_t>(rank)]; };
    int keeper = owner;
    do keeper = keeper + 1 < collective_.size() ? keeper + 1 : 0;
    while (keeper != receiver && cpu_of(keeper) != cpu_of(receiver));
    return keeper;
  }

  // `at` in the slots is `first + at` in the buffers.
  void reduce_block(std::size_t step, std::size_t first, std::size_t at, std::size_t bytes) {
    const auto block_of = [&](int peer) { return staging_.slot(peer, chunks_, step) + at; };
    const auto sources = collective_.sources();
    for (const int peer : collective_.peers())
      sources[static_cast<std::size_t>(peer)] = block_of(peer);
    sources[static_cast<std::size_t>(collective_.rank())] = reduction_.input + first + at;
    std::byte* const output =
        wants_result(collective_, reduction_) ? reduction_.output + first + at : nullptr;
    if (reduction_.root != Collective::kEveryRank) {
      std::byte* const to = output != nullptr ? output : block_of(reduction_.root);
      return collective_.reduce_out(reduction_.how, to, bytes,
                                    output != nullptr ? results_ : choice_.store);
    }
    std::byte* const result =
        choice_.store == StorePolicy::streaming ? output : block_of(collective_.peer(1));
    collective_.reduce_out(reduction_.how, result, bytes, StorePolicy::temporal);
    collective_.copy_out(output, result, bytes, results_);
    for (const int peer : collective_.peers())
      if (keeper_of(collective_.rank(), peer) == peer)
        collective_.copy_out(block_of(peer), result, bytes, choice_.store);
  }

  Collective& collective_;
  const Staging& staging_;
  const AlgorithmChoice& choice_;
  const Reduction& reduction_;
  const StorePolicy results_;
  const Chunks chunks_;
  const bool shares_;
};

// Two ranks whose results are streamed. As many lines cross when each reduces all of its result as
// when it reduces a half and collects the other, and one loop does it all: while lines come from
// the other core, the own input comes from memory and results go there.
bool exchange(Collective& collective, const AlgorithmChoice& choice, const Reduction& reduction) {
  const Staging& staging = collective.staging();
  const Chunks chunks = staging.chunk(choice, reduction.bytes, 2);
  const int peer = collective.peer(1);
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, chunks, step);
    collective.copy_out(staging.exchange_slot(collective.rank(), chunks, step),
                        reduction.input + part.first, part.bytes, choice.store);
  };
  const auto take = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, chunks, step);
    const Part next = part_of(reduction.bytes, chunks, step + kSlots);
    std::byte* const slot = staging.exchange_slot(peer, chunks, step);
    const auto sources = collective.sources();
    sources[static_cast<std::size_t>(collective.rank())] = reduction.input + part.first;
    sources[static_cast<std::size_t>(peer)] = slot;
    collective.reduce_out(reduction.how, reduction.output + part.first, part.bytes,
                          StorePolicy::streaming,
                          {.to = slot, .from = reduction.input + next.first, .bytes = next.bytes});
  };
  return run_exchange(collective, chunks.count, kSlots, stage, take);
}

}  // namespace

bool two_shot(Collective& collective, const AlgorithmChoice& choice, const Reduction& reduction) {
  if (reduction.root == Collective::kEveryRank &&
      exchanges(choice, collective.size(), reduction.bytes))
    return exchange(collective, choice, reduction);
  return TwoShot(collective, choice, reduction).run();
}

bool pull_slice(Collective& collective, const AlgorithmChoice& choice, const Reduction& reduction,
                Part slice, std::byte* output) {
  DirectAccess direct(collective);
  const std::size_t block = scratch_block(collective);
  const auto sources = collective.sources();
  for (std::size_t done = 0; done < slice.bytes; done += block) {
    const std::size_t first = slice.first + done;
    const std::size_t bytes = std::min(block, slice.bytes - done);
    sources[static_cast<std::size_t>(collective.rank())] = reduction.input + first;
    std::byte* scratch = collective.staging().of(collective.rank());
    for (int i = 1; i < collective.size(); ++i, scratch += block) {
      const int peer = collective.peer(i);
      const std::byte* const from = direct.view(peer, Side::input, first, bytes, scratch);
      if (from == nullptr) return false;
      sources[static_cast<std::size_t>(peer)] = from;
    }
    collective.reduce_out(reduction.how, output + done, bytes, choice.store);
  }
  return true;
}

bool push_slices(Collective& collective, const AlgorithmChoice& choice,
                 const Reduction& reduction) {
  DirectAccess direct(collective);
  const Part slice = share_of(reduction.bytes, collective.size(), collective.rank());
  const int first_receiver =
      reduction.root == Collective::kEveryRank ? collective.rank() : reduction.root;
  const auto sources = collective.sources();
  for (std::size_t done = 0; done < slice.bytes; done += kReducedBlock) {
    const std::size_t first = slice.first + done;
    const std::size_t bytes = std::min(kReducedBlock, slice.bytes - done);
    if (!collective.check_group()) return false;
    for (int peer = 0; peer < collective.size(); ++peer)
      sources[static_cast<std::size_t>(peer)] = direct.mapped(peer, Side::input) + first;
    std::byte* const result = direct.mapped(first_receiver, Side::output) + first;
    const bool one_receiver = reduction.root != Collective::kEveryRank;
    collective.reduce_out(reduction.how, result, bytes,
                          one_receiver ? choice.store : StorePolicy::temporal);
    for (int i = 1; i < collective.size() && !one_receiver; ++i)
      collective.copy_out(direct.mapped(collective.peer(i), Side::output) + first, result, bytes,
                          choice.store);
  }
  return collective.leave();
}

}}}  // namespace c10d::v0::native
