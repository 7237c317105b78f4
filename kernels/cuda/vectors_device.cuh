// SPDX-License-Identifier: BSD-3-Clause
// Loads and stores of a GPU. Left to itself the compiler stores by elements what was made by
// elements, and does not know that the memory is the GPU's.
#pragma once

#include <bit>
#include <type_traits>

namespace c10d { inline namespace v0 { namespace cuda_kernels {

template <class Values>
struct Vectors {
  using One = std::conditional_t<sizeof(Values) % sizeof(uint4) == 0, uint4, uint2>;
  static constexpr unsigned kCount = sizeof(Values) / sizeof(One);
  One of[kCount];
};

template <class Values>
__device__ Values load_vectors(const void* from) {
  Vectors<Values> vectors;
  for (unsigned i = 0; i < vectors.kCount; ++i)
    vectors.of[i] = __ldca(static_cast<const typename Vectors<Values>::One*>(from) + i);
  return std::bit_cast<Values>(vectors);
}

template <class Values>
__device__ void store_vectors(void* to, const Values& values) {
  const auto vectors = std::bit_cast<Vectors<Values>>(values);
  for (unsigned i = 0; i < vectors.kCount; ++i)
    __stwb(static_cast<typename Vectors<Values>::One*>(to) + i, vectors.of[i]);
}

}}}  // namespace c10d::v0::cuda_kernels
