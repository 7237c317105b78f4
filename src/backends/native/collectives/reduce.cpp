// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// The root reads all inputs.
bool pull(Round& round, const Choice& choice, const Reduction& reduction) {
  if (round.rank() != reduction.root) return round.await(reduction.root, &Progress::consumed, 1);
  if (!pull_slice(round, choice, reduction, {0, reduction.bytes}, reduction.output)) return false;
  round.publish(&Progress::consumed, 1);
  return true;
}

}  // namespace

bool run(Round& round, const Reduce& op) {
  const bool is_root = round.rank() == op.root;
  const Reduction reduction{.output = bytes_of(op.output),
                            .input = bytes_of(op.input),
                            .bytes = op.input.bytes(),
                            .how = {op.input.dtype, op.op},
                            .root = op.root};
  if (reduction.bytes <= kInlineBytes) return inline_shot(round, reduction);
  const Choice* const choice =
      round.choose(OpKind::reduce, op.input.dtype, reduction.bytes,
                   {op.input.data, op.input.bytes(), is_root ? op.output.data : nullptr,
                    is_root ? op.output.bytes() : 0});
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
