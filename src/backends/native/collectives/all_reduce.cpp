// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/reduction.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// Two shots: reduces slice i of all inputs into the own output, then fetches the other slices from
// theirs. In place is safe: a peer that has reduced its slice needs that slice of our input no
// more.
bool pull_all(Collective& collective, const AlgorithmChoice& choice, const Reduction& reduction) {
  const Part slice = share_of(reduction.bytes, collective.size(), collective.rank());
  if (!pull_slice(collective, choice, reduction, slice, reduction.output + slice.first))
    return false;
  collective.publish(&Progress::reduced, 1);
  DirectAccess direct(collective);
  for (const int peer : collective.peers()) {
    const Part theirs = share_of(reduction.bytes, collective.size(), peer);
    if (!collective.await(peer, &Progress::reduced, 1) ||
        !direct.fetch(peer, Side::output, theirs.first, reduction.output + theirs.first,
                      theirs.bytes, choice.store))
      return false;
  }
  return collective.leave();
}

}  // namespace

bool run(Collective& collective, const AllReduce& op) {
  return run_reduction(collective, OpKind::all_reduce, op, pull_all);
}

}}}  // namespace c10d::v0::native
