// SPDX-License-Identifier: BSD-3-Clause
// How the lanes of a grid share the work. Bodies of kernels are functions of which lane they are:
// a GPU runs them side by side, the host one after another.
#pragma once

#include <cstdint>

#include "kernels/cuda/arguments.h"

#if defined(__CUDACC__)
#include "kernels/cuda/vectors_device.cuh"
#define C10D_LANE __host__ __device__ inline
#else
#define C10D_LANE inline
#endif

namespace c10d { inline namespace v0 { namespace cuda_kernels {

// One of `count`.
struct Lane {
  std::uint32_t index, count;
};

// Elements that a lane loads, computes and stores at once.
template <std::uint32_t width>
struct Elements {
  static constexpr std::uint32_t kWidth = width;
};

inline constexpr std::uint32_t kVectorBytes = 16;

// The tensor that has a piece: the last one that starts at it or before.
C10D_LANE Tensor tensor_of(const Arguments& arguments, std::uint64_t piece) {
  if (!arguments.table) return arguments.only;
  std::uint64_t low = 0, high = arguments.tensors;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (arguments.table[middle].first_piece <= piece) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return arguments.table[low];
}

// Runs work(tensor, first element, elements) for the pieces of that block.
template <class Work>
C10D_LANE void each_piece(const Arguments& arguments, Lane block, const Work& work) {
  for (std::uint64_t piece = block.index; piece < arguments.pieces; piece += block.count) {
    const Tensor tensor = tensor_of(arguments, piece);
    const std::uint64_t first = (piece - tensor.first_piece) * kPiece;
    const std::uint64_t left = tensor.count - first;
    work(tensor, first, left < kPiece ? static_cast<std::uint32_t>(left) : kPiece);
  }
}

// Runs step(first element, Elements<n>) for what that thread does of `count` elements: vectors of
// `width` behind the first `head` elements, and single elements before and after them.
template <std::uint32_t width, class Step>
C10D_LANE void each_step(std::uint32_t count, std::uint32_t head, Lane thread, const Step& step) {
  const std::uint32_t vectors = (count - head) / width;
  for (std::uint32_t i = thread.index; i < vectors; i += thread.count)
    step(head + i * width, Elements<width>{});
  const std::uint32_t singles = count - vectors * width;
  for (std::uint32_t i = thread.index; i < singles; i += thread.count)
    step(i < head ? i : i + vectors * width, Elements<1>{});
}

// How many elements of that size lie before the first aligned vector.
C10D_LANE std::uint32_t elements_before_vector(const void* at, std::uint32_t bytes) {
  const auto past = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at));
  return (0 - past) % kVectorBytes / bytes;
}
C10D_LANE bool is_vector(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) % kVectorBytes == 0;
}

// Neighbours in memory that a lane loads and stores by whole vectors.
template <class T, std::uint32_t width>
struct alignas(sizeof(T) * width < kVectorBytes ? sizeof(T) * width : kVectorBytes) Neighbours {
  T of[width];
};
template <std::uint32_t width, class T>
C10D_LANE Neighbours<T, width> load(const T* from) {
#if defined(__CUDA_ARCH__)
  if constexpr (width > 1) return load_vectors<Neighbours<T, width>>(from);
#endif
  return *reinterpret_cast<const Neighbours<T, width>*>(from);
}
template <std::uint32_t width, class T>
C10D_LANE void store(T* to, const Neighbours<T, width>& values) {
#if defined(__CUDA_ARCH__)
  if constexpr (width > 1) return store_vectors(to, values);
#endif
  *reinterpret_cast<Neighbours<T, width>*>(to) = values;
}

}}}  // namespace c10d::v0::cuda_kernels
