// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>

#include "c10d/device.h"
#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// The type of the elements of a buffer.
enum class DType : std::uint8_t {
  f64,     // double
  f32,     // float
  f16,     // Float16, IEEE binary16
  bf16,    // BFloat16, the upper half of a float
  i64,     // std::int64_t
  i32,     // std::int32_t
  i16,     // std::int16_t
  i8,      // std::int8_t
  u64,     // std::uint64_t
  u32,     // std::uint32_t
  u16,     // std::uint16_t
  u8,      // std::uint8_t
  boolean  // bool
};
// Number of dtypes.
inline constexpr int kDTypeCount = 13;

// An IEEE binary16 number as it lies in memory. It has no arithmetic of its own: ops compute in
// f32.
struct Float16 {
  std::uint16_t bits;  // sign, 5 bits of exponent, 10 of fraction
};
// A bfloat16 number as it lies in memory. It has no arithmetic of its own: ops compute in f32.
struct BFloat16 {
  std::uint16_t bits;  // the upper 16 bits of a float
};

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
  constexpr std::size_t sizes[kDTypeCount] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1};
  return sizes[static_cast<int>(dtype)];
}

// Name of a dtype: "f32", "bf16", "bool", ... Command lines and messages use it.
C10D_API std::string_view to_string(DType dtype) noexcept;
// The dtype of that name. Throws InvalidArgument that lists the names.
C10D_API DType dtype_from_string(std::string_view name);

namespace detail {
template <class T>
struct DTypeOf {};
// clang-format off
template <> struct DTypeOf<double> { static constexpr DType value = DType::f64; };
template <> struct DTypeOf<float> { static constexpr DType value = DType::f32; };
template <> struct DTypeOf<Float16> { static constexpr DType value = DType::f16; };
template <> struct DTypeOf<BFloat16> { static constexpr DType value = DType::bf16; };
template <> struct DTypeOf<std::int64_t> { static constexpr DType value = DType::i64; };
template <> struct DTypeOf<std::int32_t> { static constexpr DType value = DType::i32; };
template <> struct DTypeOf<std::int16_t> { static constexpr DType value = DType::i16; };
template <> struct DTypeOf<std::int8_t> { static constexpr DType value = DType::i8; };
template <> struct DTypeOf<std::uint64_t> { static constexpr DType value = DType::u64; };
template <> struct DTypeOf<std::uint32_t> { static constexpr DType value = DType::u32; };
template <> struct DTypeOf<std::uint16_t> { static constexpr DType value = DType::u16; };
template <> struct DTypeOf<std::uint8_t> { static constexpr DType value = DType::u8; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::boolean; };
// clang-format on
}  // namespace detail

// The C++ types that have a DType.
template <class T>
concept Element = requires {
  detail::DTypeOf<std::remove_cv_t<T>>::value;
};

// The DType of a C++ type: dtype_of<float> is DType::f32.
template <Element T>
inline constexpr DType dtype_of = detail::DTypeOf<std::remove_cv_t<T>>::value;

namespace detail {
template <class R>
concept ElementRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    Element<std::ranges::range_value_t<R>>;
}

// A view of contiguous elements that an op reads: pointer, count, dtype, device. It does not own
// the memory, which must stay valid until the op that uses it is done. Arrays, vectors, spans and
// Buffers of an Element type convert to it. A default-constructed view is "no buffer": ranks that
// neither give nor get data pass it.
struct ConstTensor {
  const void* data = nullptr;  // the first element
  std::size_t count = 0;       // number of elements
  DType dtype = DType::u8;     // type of the elements
  Device device{};             // where the memory lies

  // No buffer.
  ConstTensor() = default;
  // A view of `count_` elements at `data_`.
  ConstTensor(const void* data_, std::size_t count_, DType dtype_, Device device_ = {}) noexcept
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  // A view of a contiguous range.
  template <detail::ElementRange R>
  ConstTensor(const R& range) noexcept
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        dtype(dtype_of<std::ranges::range_value_t<R>>) {}

  // Size in bytes.
  std::size_t bytes() const noexcept { return count * size_of(dtype); }
  // A view of the elements [first, first + n). It does not check that they are inside this view.
  ConstTensor slice(std::size_t first, std::size_t n) const noexcept {
    return {static_cast<const std::byte*>(data) + first * size_of(dtype), n, dtype, device};
  }
};

// A view of contiguous elements that an op writes. As ConstTensor otherwise; memory that is const
// does not convert to it.
struct Tensor {
  void* data = nullptr;     // the first element
  std::size_t count = 0;    // number of elements
  DType dtype = DType::u8;  // type of the elements
  Device device{};          // where the memory lies

  // No buffer.
  Tensor() = default;
  // A view of `count_` elements at `data_`.
  Tensor(void* data_, std::size_t count_, DType dtype_, Device device_ = {}) noexcept
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  // A view of a contiguous range whose elements are not const.
  template <detail::ElementRange R>
  requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
      Tensor(R&& range)
  noexcept
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        dtype(dtype_of<std::ranges::range_value_t<R>>) {}

  // The same view, to be read only.
  operator ConstTensor() const noexcept { return {data, count, dtype, device}; }
  // Size in bytes.
  std::size_t bytes() const noexcept { return count * size_of(dtype); }
  // A view of the elements [first, first + n). It does not check that they are inside this view.
  Tensor slice(std::size_t first, std::size_t n) const noexcept {
    return {static_cast<std::byte*>(data) + first * size_of(dtype), n, dtype, device};
  }
};

}}  // namespace c10d::v0
