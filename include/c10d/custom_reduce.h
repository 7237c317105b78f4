// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include "c10d/process_group.h"

// Reductions with a function of yours (MPI_Op_create), on any trivially copyable type.
namespace c10d { inline namespace v0 {

namespace detail {

// The reduction over values[0], values[stride], ..., `count` of them, along the tree over ranks:
// the left part holds the largest power of two of ranks that leaves some to the right.
template <class T, class F>
T reduce_along_tree(const T* values, std::size_t count, std::size_t stride, F& f) {
  if (count == 1) return *values;
  const std::size_t left = std::bit_floor(count - 1);
  return f(reduce_along_tree(values, left, stride, f),
           reduce_along_tree(values + left * stride, count - left, stride, f));
}

}  // namespace detail

// All-reduce in place with f: data[i] becomes the reduction over all ranks of their data[i]. Every
// rank passes the same number of elements and the same f. f is associative; it need not be
// commutative: its first argument comes from lower ranks.
//
// The order is the tree over ranks on every backend, so all ranks get the same bits, in every run.
// Cost: an all_gather in slices of at most 4 MiB, then f on every rank; each rank receives n times
// the data. Throws what all_gather() throws. An exception of f leaves this rank: the others do not
// know, so let f not throw.
template <class T, class F>
requires std::is_trivially_copyable_v<T> && std::convertible_to<std::invoke_result_t<F&, T, T>, T>
void all_reduce(const ProcessGroup& group, std::span<T> data, F f, CallOptions options = {}) {
  constexpr std::size_t kSlice = std::size_t{4} << 20;
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t most = std::max<std::size_t>(1, kSlice / sizeof(T) / ranks);
  std::vector<T> all(std::min(most, data.size()) * ranks);
  for (std::size_t first = 0; first < data.size() || first == 0; first += most) {
    const std::span<T> slice = data.subspan(first, std::min(most, data.size() - first));
    const std::size_t count = slice.size();
    group.all_gather(
        View(static_cast<void*>(all.data()), count * ranks * sizeof(T), DType::u8),
        ConstView(static_cast<const void*>(slice.data()), count * sizeof(T), DType::u8), options);
    for (std::size_t i = 0; i < count; ++i)
      slice[i] = detail::reduce_along_tree(all.data() + i, ranks, count, f);
  }
}
// The same for a vector, an array or any other contiguous range that can be written to.
template <std::ranges::contiguous_range R, class F>
requires std::is_trivially_copyable_v<std::ranges::range_value_t<R>> &&
    std::ranges::sized_range<R> && requires(R& data) {
  std::span(data);
}
void all_reduce(const ProcessGroup& group, R& data, F f, CallOptions options = {}) {
  all_reduce(group, std::span<std::ranges::range_value_t<R>>(data), f, options);
}
// The same for one value: returns the reduction.
template <class T, class F>
requires std::is_trivially_copyable_v<T> && std::convertible_to<std::invoke_result_t<F&, T, T>, T> T
all_reduce(const ProcessGroup& group, T value, F f, CallOptions options = {}) {
  all_reduce(group, std::span<T>(&value, 1), f, options);
  return value;
}

// A value, and where it is: a rank, or an index of yours.
template <class T>
struct Located {
  T value;                // what is compared
  std::int64_t location;  // where it is
  // Both are equal.
  friend bool operator==(const Located&, const Located&) = default;
};

// For all_reduce() of Located values: the smallest (MPI_MINLOC). Of equal ones the lowest location.
struct MinLoc {
  // The one of the two.
  template <class T>
  Located<T> operator()(const Located<T>& a, const Located<T>& b) const {
    if (a.value < b.value) return a;
    if (b.value < a.value) return b;
    return a.location <= b.location ? a : b;
  }
};
// For all_reduce() of Located values: the largest (MPI_MAXLOC). Of equal ones the lowest location.
struct MaxLoc {
  // The one of the two.
  template <class T>
  Located<T> operator()(const Located<T>& a, const Located<T>& b) const {
    if (b.value < a.value) return a;
    if (a.value < b.value) return b;
    return a.location <= b.location ? a : b;
  }
};

}}  // namespace c10d::v0
