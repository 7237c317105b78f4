// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {

bool run(Round& round, const Reduce& op) {
  return staged_reduction(round, {.output = bytes_of(op.output),
                                  .input = bytes_of(op.input),
                                  .bytes = op.input.bytes(),
                                  .dtype = op.input.dtype,
                                  .op = op.op,
                                  .root = op.root});
}

}  // namespace c10d::inline v0::native
