// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/reduction.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// The root reads all inputs.
bool pull_to_root(Collective& collective, const AlgorithmChoice& choice,
                  const Reduction& reduction) {
  if (collective.rank() != reduction.root)
    return collective.await(reduction.root, &Progress::consumed, 1);
  if (!pull_slice(collective, choice, reduction, {0, reduction.bytes}, reduction.output))
    return false;
  collective.publish(&Progress::consumed, 1);
  return true;
}

}  // namespace

bool run(Collective& collective, const Reduce& op) {
  return run_reduction(collective, OpKind::reduce, op, pull_to_root);
}

}}}  // namespace c10d::v0::native
