// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean
};
inline constexpr int kDTypeCount = 13;

// IEEE binary16 and bfloat16 as they lie in memory. Arithmetic happens in float: see
// ReduceOp.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

constexpr std::size_t size_of(DType dtype) noexcept {
  constexpr std::size_t sizes[kDTypeCount] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1};
  return sizes[static_cast<int>(dtype)];
}

// "f32", "bf16", "bool", ...: the spelling of the command line and of every message.
C10D_API std::string_view to_string(DType dtype) noexcept;
// The dtype of that name. Throws InvalidArgument that lists the names.
C10D_API DType dtype_from_string(std::string_view name);

enum class DeviceType : std::uint8_t { cpu, cuda };
inline constexpr int kDeviceTypeCount = 2;
C10D_API std::string_view to_string(DeviceType type) noexcept;

struct Device {
  DeviceType type = DeviceType::cpu;
  std::int16_t index = 0;  // CUDA ordinal; 0 on the CPU
  bool operator==(const Device&) const = default;
};

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

template <class T>
concept Element = requires {
  detail::DTypeOf<std::remove_cv_t<T>>::value;
};

template <Element T>
inline constexpr DType dtype_of = detail::DTypeOf<std::remove_cv_t<T>>::value;

namespace detail {
template <class R>
concept ElementRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    Element<std::ranges::range_value_t<R>>;
}

// A borrowed, typed view of contiguous elements: pointer, count, dtype, device. It never owns; the
// memory must stay valid until the op that uses it is done. A default-constructed view is "no
// buffer", which is what the ranks that neither give nor receive data pass.
struct ConstTensor {
  const void* data = nullptr;
  std::size_t count = 0;  // elements
  DType dtype = DType::u8;
  Device device{};

  ConstTensor() = default;
  ConstTensor(const void* data_, std::size_t count_, DType dtype_, Device device_ = {}) noexcept
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  template <detail::ElementRange R>
  ConstTensor(const R& range) noexcept
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        dtype(dtype_of<std::ranges::range_value_t<R>>) {}

  std::size_t bytes() const noexcept { return count * size_of(dtype); }
  // Elements [first, first + n). The caller keeps inside the view.
  ConstTensor slice(std::size_t first, std::size_t n) const noexcept {
    return {static_cast<const std::byte*>(data) + first * size_of(dtype), n, dtype, device};
  }
};

// The same for memory that an op writes.
struct Tensor {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::u8;
  Device device{};

  Tensor() = default;
  Tensor(void* data_, std::size_t count_, DType dtype_, Device device_ = {}) noexcept
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  template <detail::ElementRange R>
  requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
      Tensor(R&& range)
  noexcept
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        dtype(dtype_of<std::ranges::range_value_t<R>>) {}

  operator ConstTensor() const noexcept { return {data, count, dtype, device}; }
  std::size_t bytes() const noexcept { return count * size_of(dtype); }
  Tensor slice(std::size_t first, std::size_t n) const noexcept {
    return {static_cast<std::byte*>(data) + first * size_of(dtype), n, dtype, device};
  }
};

}}  // namespace c10d::v0
