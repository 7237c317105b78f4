// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/tensor.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Rounds f32 to bf16, which lie in the first half of the same memory then.
Tensor narrow_in_place(const Tensor& values);
// Exact. `to`, of as many f32, may share memory with `from` where no element of `to` lies before
// its own of `from`: a slice of narrow_in_place() back to that slice of the f32.
void widen_in_place(const ConstTensor& from, const Tensor& to);

}}}  // namespace c10d::v0::parallel
