// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/reduce.h"
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// With one rank every op is a copy, or a reduction of one input: avg divides by 1, premul_sum
// multiplies.
template <class T>
void run(const T& op) {
  if constexpr (requires { op.op; }) {
    const std::byte* const input[] = {bytes_of(op.input)};
    if (op.output.count != 0)
      reduce(op.input.dtype, op.op, bytes_of(op.output), input, op.output.count);
  } else if constexpr (requires { op.input, op.output; }) {
    copy_bytes(op.output.data, op.input.data, op.output.bytes());
  }
}

}  // namespace

void run_alone(const Op& op) {
  std::visit([](const auto& any) { run(any); }, op);
}

}}}  // namespace c10d::v0::native
