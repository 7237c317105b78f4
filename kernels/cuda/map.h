// SPDX-License-Identifier: BSD-3-Clause
// Kernels that make each element of the output from the elements at the same place.
#pragma once

#include <cstdint>

#include "kernels/cuda/lane.h"

namespace c10d { inline namespace v0 { namespace cuda_kernels {

// An operation is made from the arguments. It has types In and Out, and makes one Out of one In or,
// if kOperands is 2, of two.
template <class Operation>
struct Map {
  static constexpr int kOperands = 1;

  C10D_LANE static void run(const Arguments& arguments, Lane block, Lane thread) {
    using In = typename Operation::In;
    using Out = typename Operation::Out;
    constexpr bool kOutIsSmaller = sizeof(Out) <= sizeof(In);
    constexpr std::uint32_t kSmaller = kOutIsSmaller ? sizeof(Out) : sizeof(In);
    constexpr std::uint32_t kWidth = kVectorBytes / kSmaller;
    const Operation operation(arguments);
    each_piece(arguments, block, [&](const Tensor& tensor, std::uint64_t first, auto count) {
      Out* const out = static_cast<Out*>(tensor.out) + first;
      const In* const in = static_cast<const In*>(tensor.in) + first;
      const In* other = in;
      if constexpr (Operation::kOperands == 2) other = static_cast<const In*>(tensor.other) + first;
      const void* const smaller = kOutIsSmaller ? static_cast<const void*>(out) : in;
      std::uint32_t head = elements_before_vector(smaller, kSmaller);
      if (head > count || !is_vector(out + head) || !is_vector(in + head) ||
          !is_vector(other + head))
        head = count;
      each_step<kWidth>(count, head, thread, [&](std::uint32_t at, auto elements) {
        constexpr std::uint32_t kElements = decltype(elements)::kWidth;
        const auto values = load<kElements>(in + at);
        Neighbours<Out, kElements> made;
        if constexpr (Operation::kOperands == 2) {
          const auto others = load<kElements>(other + at);
          for (std::uint32_t i = 0; i < kElements; ++i)
            made.of[i] = operation(values.of[i], others.of[i]);
        } else {
          for (std::uint32_t i = 0; i < kElements; ++i) made.of[i] = operation(values.of[i]);
        }
        store(out + at, made);
      });
    });
  }
};

}}}  // namespace c10d::v0::cuda_kernels
