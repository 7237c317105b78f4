// SPDX-License-Identifier: BSD-3-Clause
// The tree of kernels/reduce.h over inputs that lie one behind another, as all_gather leaves them:
// accumulated in the type that elements are computed in, and rounded once.
#pragma once

#include <cstdint>

#include "kernels/cuda/lane.h"
#include "kernels/cuda/numbers.h"

namespace c10d { inline namespace v0 { namespace cuda_kernels {

// A sum takes Arguments::factor times each input, and all are divided by Arguments::divisor: sum,
// premul_sum and avg are one kernel.
template <class Op, class T>
struct Fold {
  using In = T;
  using Out = T;
  static constexpr int kOperands = 1;
  // Four inputs are loaded together. Whole subtrees of them wait in registers, one of each size, as
  // the bits of a counter do: 4 of them, 8, 16 and so on.
  static constexpr std::uint32_t kLoaded = 4, kSizes = 9;
  static_assert(kLoaded << (kSizes - 1) == kMostInputs);

  template <std::uint32_t width>
  using Sums = Neighbours<Wide<T>, width>;

  template <std::uint32_t width>
  C10D_LANE static Sums<width> combined(const Sums<width>& left, const Sums<width>& right) {
    Sums<width> sums;
    for (std::uint32_t i = 0; i < width; ++i) sums.of[i] = Op::combine(left.of[i], right.of[i]);
    return sums;
  }

  template <std::uint32_t width>
  C10D_LANE static Sums<width> leaf(const Neighbours<T, width>& values, Wide<T> factor) {
    Sums<width> sums;
    for (std::uint32_t i = 0; i < width; ++i) {
      sums.of[i] = widen(values.of[i]);
      if constexpr (std::is_same_v<Op, word::sum>) sums.of[i] *= factor;
    }
    return sums;
  }

  // The tree of one step, whose elements lie `stride` bytes further on in each next input.
  template <std::uint32_t width>
  C10D_LANE static Sums<width> tree(const char* in, const Arguments& arguments) {
    const auto factor = static_cast<Wide<T>>(arguments.factor);
    const auto inputs = static_cast<std::uint32_t>(arguments.inputs);
    const auto input = [&](std::uint32_t i) {
      return load<width>(reinterpret_cast<const T*>(in + i * arguments.stride));
    };
    const std::uint32_t groups = inputs / kLoaded, whole = groups * kLoaded;
    Sums<width> waiting[kSizes] = {};
    for (std::uint32_t group = 0; group < groups; ++group) {
      const std::uint32_t i = group * kLoaded;
      const auto a = input(i), b = input(i + 1), c = input(i + 2), d = input(i + 3);
      Sums<width> sums = combined(combined(leaf(a, factor), leaf(b, factor)),
                                  combined(leaf(c, factor), leaf(d, factor)));
      bool waits = false;
      for (std::uint32_t size = 0; size < kSizes; ++size) {
        if (waits) continue;
        if ((group >> size & 1) != 0) {
          sums = combined(waiting[size], sums);
        } else {
          waiting[size] = sums;
          waits = true;
        }
      }
    }
    // From the right: the inputs behind the last group, then what waits, the smallest first.
    Sums<width> sums{};
    bool any = whole < inputs;
    if (any) {
      sums = leaf(input(whole), factor);
      if (whole + 1 < inputs) sums = combined(sums, leaf(input(whole + 1), factor));
      if (whole + 2 < inputs) sums = combined(sums, leaf(input(whole + 2), factor));
    }
    for (std::uint32_t size = 0; size < kSizes; ++size) {
      if ((groups >> size & 1) == 0) continue;
      sums = any ? combined(waiting[size], sums) : waiting[size];
      any = true;
    }
    return sums;
  }

  C10D_LANE static void run(const Arguments& arguments, Lane block, Lane thread) {
    constexpr std::uint32_t kWidth =
        kVectorBytes / sizeof(Wide<T>);  // more do not fit in registers
    const auto divisor = static_cast<Wide<T>>(arguments.divisor);
    each_piece(arguments, block, [&](const Tensor& tensor, std::uint64_t first, auto count) {
      T* const out = static_cast<T*>(tensor.out) + first;
      const T* const in = static_cast<const T*>(tensor.in) + first;
      std::uint32_t head = elements_before_vector(out, sizeof(T));
      if (head > count || !is_vector(in + head) || arguments.stride % kVectorBytes != 0)
        head = count;
      each_step<kWidth>(count, head, thread, [&](std::uint32_t at, auto elements) {
        constexpr std::uint32_t kElements = decltype(elements)::kWidth;
        const auto sums = tree<kElements>(reinterpret_cast<const char*>(in + at), arguments);
        Neighbours<T, kElements> made;
        for (std::uint32_t i = 0; i < kElements; ++i) made.of[i] = result<T>(sums.of[i] / divisor);
        store(out + at, made);
      });
    });
  }
};

#define C10D_FOLD_KERNELS(K) \
  K(fold, sum, f64, Fold)    \
  K(fold, sum, f32, Fold)    \
  K(fold, sum, f16, Fold)    \
  K(fold, sum, bf16, Fold)   \
  K(fold, prod, f64, Fold)   \
  K(fold, prod, f32, Fold)   \
  K(fold, prod, f16, Fold)   \
  K(fold, prod, bf16, Fold)

}}}  // namespace c10d::v0::cuda_kernels
