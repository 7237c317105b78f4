// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {

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
    case Algorithm::two_shot:
      return two_shot(round, *choice, reduction);
    case Algorithm::push:
      return push_slices(round, *choice, reduction);
    default:
      return one_shot(round, *choice, reduction);
  }
}

}  // namespace c10d::inline v0::native
