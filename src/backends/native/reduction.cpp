// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {
namespace {

// Reduced, and then copied to the other ranks while it is in the L1 cache.
constexpr std::size_t kPushBlock = std::size_t{16} << 10;

bool wants(const Round& round, const Reduction& reduction) {
  return reduction.root == Round::kEveryRank || reduction.root == round.rank();
}

}  // namespace

bool inline_shot(Round& round, const Reduction& reduction) {
  copy_bytes(round.payload(round.rank()), reduction.input, reduction.bytes);
  if (!round.enter()) return false;
  if (!wants(round, reduction) || reduction.bytes == 0) return true;
  const auto sources = round.sources();
  for (int peer = 0; peer < round.size(); ++peer)
    sources[static_cast<std::size_t>(peer)] = round.payload(peer);
  round.reduce_out(reduction.how, reduction.output, reduction.bytes, StorePolicy::temporal);
  return true;
}

bool one_shot(Round& round, const Choice& choice, const Reduction& reduction) {
  const Pieces pieces = round.cut(choice, reduction.bytes);
  const StorePolicy results = result_policy(choice, reduction.bytes);
  const bool takes = wants(round, reduction);
  const Flow flow{.steps = pieces.count,
                  .stages = reduction.root != round.rank(),
                  .takes = takes,
                  .reader = reduction.root};
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, pieces, step);
    round.copy_out(round.slot(round.rank(), pieces, step), reduction.input + part.first, part.bytes,
                   choice.store);
  };
  const auto take = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, pieces, step);
    const auto sources = round.sources();
    sources[static_cast<std::size_t>(round.rank())] = reduction.input + part.first;
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      if (!round.await_staged(peer, step)) return false;
      sources[static_cast<std::size_t>(peer)] = round.slot(peer, pieces, step);
    }
    round.reduce_out(reduction.how, reduction.output + part.first, part.bytes, results);
    return true;
  };
  return run_steps(round, flow, stage, take);
}

namespace {

// The steps of two_shot, each over one piece.
class TwoShot {
 public:
  TwoShot(Round& round, const Choice& choice, const Reduction& reduction)
      : round_(round),
        choice_(choice),
        reduction_(reduction),
        results_(result_policy(choice, reduction.bytes)),
        pieces_(round.cut(choice, reduction.bytes)) {}

  std::size_t steps() const noexcept { return pieces_.count; }

  // Copies in what others reduce: all but the own slice.
  bool stage(std::size_t step) {
    if (!round_.await_free(step, Round::kEveryRank)) return false;
    const Part part = part_of(reduction_.bytes, pieces_, step);
    const Part own = share_of(part.bytes, round_.size(), round_.rank());
    const std::size_t after = own.first + own.bytes;
    const std::byte* const input = reduction_.input + part.first;
    std::byte* const slot = round_.slot(round_.rank(), pieces_, step);
    round_.copy_out(slot, input, own.first, choice_.store);
    round_.copy_out(slot + after, input + after, part.bytes - after, choice_.store);
    if (round_.entered()) round_.publish(&Progress::staged, step + 1);
    return true;
  }

  // Into the output, where there is one, and from there into the slot for the others.
  bool reduce_slice(std::size_t step) {
    const Part part = part_of(reduction_.bytes, pieces_, step);
    const Part own = share_of(part.bytes, round_.size(), round_.rank());
    const auto sources = round_.sources();
    for (int i = 1; i < round_.size(); ++i) {
      const int peer = round_.peer(i);
      if (!round_.await_staged(peer, step)) return false;
      sources[static_cast<std::size_t>(peer)] = round_.slot(peer, pieces_, step) + own.first;
    }
    const std::size_t first = part.first + own.first;
    sources[static_cast<std::size_t>(round_.rank())] = reduction_.input + first;
    std::byte* const slot = round_.slot(round_.rank(), pieces_, step) + own.first;
    if (own.bytes != 0 && !wants(round_, reduction_)) {
      round_.reduce_out(reduction_.how, slot, own.bytes, choice_.store);
    } else if (own.bytes != 0) {
      std::byte* const output = reduction_.output + first;
      round_.reduce_out(reduction_.how, output, own.bytes, StorePolicy::temporal);
      if (reduction_.root == Round::kEveryRank)
        round_.copy_out(slot, output, own.bytes, choice_.store);
    }
    round_.publish(&Progress::reduced, step + 1);
    return true;
  }

  bool collect(std::size_t step) {
    if (wants(round_, reduction_)) {
      const Part part = part_of(reduction_.bytes, pieces_, step);
      for (int i = 1; i < round_.size(); ++i) {
        const int peer = round_.peer(i);
        const Part slice = share_of(part.bytes, round_.size(), peer);
        if (!round_.await(peer, &Progress::reduced, step + 1)) return false;
        round_.copy_out(reduction_.output + part.first + slice.first,
                        round_.slot(peer, pieces_, step) + slice.first, slice.bytes, results_);
      }
    }
    round_.publish(&Progress::consumed, step + 1);
    return true;
  }

 private:
  Round& round_;
  const Choice& choice_;
  const Reduction& reduction_;
  const StorePolicy results_;
  const Pieces pieces_;
};

}  // namespace

bool two_shot(Round& round, const Choice& choice, const Reduction& reduction) {
  TwoShot shot(round, choice, reduction);
  // Three stages, each one step behind the one before.
  for (std::size_t step = 0; step < shot.steps() + 2; ++step) {
    if (step < shot.steps() && !shot.stage(step)) return false;
    if (!round.entered() && !round.enter()) return false;
    if (step >= 1 && step <= shot.steps() && !shot.reduce_slice(step - 1)) return false;
    if (step >= 2 && !shot.collect(step - 2)) return false;
  }
  return true;
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
  for (std::size_t done = 0; done < slice.bytes; done += kPushBlock) {
    const std::size_t first = slice.first + done;
    const std::size_t bytes = std::min(kPushBlock, slice.bytes - done);
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

}  // namespace c10d::inline v0::native
