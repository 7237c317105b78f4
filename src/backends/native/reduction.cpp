// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/reduce.h"
#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {
namespace {

// All ranks' work together grows with n * n in one shot, with n in two, which cost two more waits.
constexpr std::size_t kOneShotBytes = std::size_t{64} << 10;

bool wants(const Round& round, const Reduction& reduction) {
  return reduction.root == Round::kEveryRank || reduction.root == round.rank();
}

// The same inline: the whole payload travels in the entry.
bool inline_shot(Round& round, const Reduction& reduction) {
  copy_bytes(round.payload(round.rank()), reduction.input, reduction.bytes);
  if (!round.enter()) return false;
  if (!wants(round, reduction) || reduction.bytes == 0) return true;
  const auto sources = round.sources();
  for (int peer = 0; peer < round.size(); ++peer)
    sources[static_cast<std::size_t>(peer)] = round.payload(peer);
  reduce(reduction.dtype, reduction.op, reduction.output, sources,
         reduction.bytes / size_of(reduction.dtype));
  return true;
}

}  // namespace

bool one_shot(Round& round, const Reduction& reduction) {
  const Pieces pieces = round.cut(reduction.bytes);
  const bool takes = wants(round, reduction);
  const Flow flow{.steps = pieces.count,
                  .stages = reduction.root != round.rank(),
                  .takes = takes,
                  .reader = reduction.root};
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(reduction.bytes, pieces, step);
    copy_bytes(round.slot(round.rank(), pieces, step), reduction.input + part.first, part.bytes);
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
    reduce(reduction.dtype, reduction.op, reduction.output + part.first, sources,
           part.bytes / size_of(reduction.dtype));
    return true;
  };
  return run_steps(round, flow, stage, take);
}

namespace {

// The steps of two_shot, each over one piece.
class TwoShot {
 public:
  TwoShot(Round& round, const Reduction& reduction)
      : round_(round), reduction_(reduction), pieces_(round.cut(reduction.bytes)) {}

  std::size_t steps() const noexcept { return pieces_.count; }

  // Copies in what others reduce: all but the own slice.
  bool stage(std::size_t step) {
    if (!round_.await_free(step, Round::kEveryRank)) return false;
    const Part part = part_of(reduction_.bytes, pieces_, step);
    const Part own = share_of(part.bytes, round_.size(), round_.rank());
    const std::size_t after = own.first + own.bytes;
    std::byte* const slot = round_.slot(round_.rank(), pieces_, step);
    copy_bytes(slot, reduction_.input + part.first, own.first);
    copy_bytes(slot + after, reduction_.input + part.first + after, part.bytes - after);
    if (round_.entered()) round_.publish(&Progress::staged, step + 1);
    return true;
  }

  bool reduce_slice(std::size_t step) {
    const Part part = part_of(reduction_.bytes, pieces_, step);
    const Part own = share_of(part.bytes, round_.size(), round_.rank());
    const auto sources = round_.sources();
    for (int i = 1; i < round_.size(); ++i) {
      const int peer = round_.peer(i);
      if (!round_.await_staged(peer, step)) return false;
      sources[static_cast<std::size_t>(peer)] = round_.slot(peer, pieces_, step) + own.first;
    }
    sources[static_cast<std::size_t>(round_.rank())] = reduction_.input + part.first + own.first;
    if (own.bytes != 0)
      reduce(reduction_.dtype, reduction_.op, round_.slot(round_.rank(), pieces_, step) + own.first,
             sources, own.bytes / size_of(reduction_.dtype));
    round_.publish(&Progress::reduced, step + 1);
    return true;
  }

  bool collect(std::size_t step) {
    if (wants(round_, reduction_)) {
      const Part part = part_of(reduction_.bytes, pieces_, step);
      for (int i = 0; i < round_.size(); ++i) {
        const int peer = round_.peer(i);
        const Part slice = share_of(part.bytes, round_.size(), peer);
        if (i != 0 && !round_.await(peer, &Progress::reduced, step + 1)) return false;
        copy_bytes(reduction_.output + part.first + slice.first,
                   round_.slot(peer, pieces_, step) + slice.first, slice.bytes);
      }
    }
    round_.publish(&Progress::consumed, step + 1);
    return true;
  }

 private:
  Round& round_;
  const Reduction& reduction_;
  const Pieces pieces_;
};

}  // namespace

bool two_shot(Round& round, const Reduction& reduction) {
  TwoShot shot(round, reduction);
  // Three stages, each one step behind the one before.
  for (std::size_t step = 0; step < shot.steps() + 2; ++step) {
    if (step < shot.steps() && !shot.stage(step)) return false;
    if (!round.entered() && !round.enter()) return false;
    if (step >= 1 && step <= shot.steps() && !shot.reduce_slice(step - 1)) return false;
    if (step >= 2 && !shot.collect(step - 2)) return false;
  }
  return true;
}

bool staged_reduction(Round& round, const Reduction& reduction) {
  if (reduction.bytes <= kInlineBytes) return inline_shot(round, reduction);
  const auto ranks = static_cast<std::size_t>(round.size());
  if (ranks == 2 || reduction.bytes <= kOneShotBytes / ranks) return one_shot(round, reduction);
  return two_shot(round, reduction);
}

}  // namespace c10d::inline v0::native
