// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// Two shots: reduces slice i of all inputs into the own output, then fetches the other slices from
// theirs. In place is safe: a peer that has reduced its slice needs that slice of our input no
// more.
bool pull(Round& round, const Choice& choice, const Reduction& reduction) {
  const Part slice = share_of(reduction.bytes, round.size(), round.rank());
  if (!pull_slice(round, choice, reduction, slice, reduction.output + slice.first)) return false;
  round.publish(&Progress::reduced, 1);
  for (int i = 1; i < round.size(); ++i) {
    const int peer = round.peer(i);
    const Part theirs = share_of(reduction.bytes, round.size(), peer);
    if (!round.await(peer, &Progress::reduced, 1) ||
        !round.fetch(peer, Side::output, theirs.first, reduction.output + theirs.first,
                     theirs.bytes, choice.store))
      return false;
  }
  return round.leave();
}

}  // namespace

bool run(Round& round, const AllReduce& op) {
  const Reduction reduction{.output = bytes_of(op.output),
                            .input = bytes_of(op.input),
                            .bytes = op.input.bytes(),
                            .how = {op.input.dtype, op.op}};
  if (reduction.bytes <= kInlineBytes) return inline_shot(round, reduction);
  const Choice* const choice =
      round.choose(OpKind::all_reduce, op.input.dtype, reduction.bytes,
                   {op.input.data, op.input.bytes(), op.output.data, op.output.bytes()});
  if (choice == nullptr) return false;
  switch (choice->algorithm) {
    case Algorithm::one_shot:
      return one_shot(round, *choice, reduction);
    case Algorithm::two_shot:
      return two_shot(round, *choice, reduction);
    case Algorithm::pull:
      return pull(round, *choice, reduction);
    case Algorithm::push:
      return push_slices(round, *choice, reduction);
  }
  return false;
}

}}}  // namespace c10d::v0::native
