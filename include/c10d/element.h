// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "c10d/export.h"
#include "c10d/small_float.h"

namespace c10d { inline namespace v0 {

// The type of the elements of a buffer.
enum class DType : std::uint8_t {
  f64,      // double
  f32,      // float
  f16,      // Float16, IEEE binary16
  bf16,     // BFloat16, the upper half of a float
  i64,      // std::int64_t
  i32,      // std::int32_t
  i16,      // std::int16_t
  i8,       // std::int8_t
  u64,      // std::uint64_t
  u32,      // std::uint32_t
  u16,      // std::uint16_t
  u8,       // std::uint8_t
  boolean,  // bool
  c64,      // std::complex<float>: real part, imaginary part
  c128,     // std::complex<double>
  f8e4m3,   // Float8E4M3, to be moved; to be reduced by nccl only
  f8e5m2    // Float8E5M2, likewise
};
// Number of dtypes.
inline constexpr int kDTypeCount = 17;

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
  constexpr std::size_t sizes[kDTypeCount] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1, 8, 16, 1, 1};
  return sizes[static_cast<int>(dtype)];
}
// Whether an element is a complex number.
constexpr bool is_complex(DType dtype) noexcept {
  return dtype == DType::c64 || dtype == DType::c128;
}
// Whether an element is a floating point number of 8 bits.
constexpr bool is_float8(DType dtype) noexcept {
  return dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
}
// Whether an element is a real floating point number, of any size.
constexpr bool is_floating(DType dtype) noexcept {
  return dtype <= DType::bf16 || is_float8(dtype);
}
// The dtype of the parts of a complex number; any other dtype itself.
constexpr DType real_of(DType dtype) noexcept {
  if (!is_complex(dtype)) return dtype;
  return dtype == DType::c64 ? DType::f32 : DType::f64;
}

// Name of a dtype: "f32", "bf16", "bool", ... Command lines and messages use it.
C10D_API std::string_view to_string(DType dtype) noexcept;
// The dtype of that name. Throws InvalidArgument that lists the names.
C10D_API DType dtype_from_string(std::string_view name);

// Where memory lies.
enum class DeviceType : std::uint8_t {
  cpu,  // memory of the host
  cuda  // memory of a CUDA GPU: see cuda.h
};
// Number of device types.
inline constexpr int kDeviceTypeCount = 2;
// Name of a device type: "cpu" or "cuda".
C10D_API std::string_view to_string(DeviceType type) noexcept;

// One device.
struct Device {
  DeviceType type = DeviceType::cpu;  // what kind of device
  std::int16_t index = 0;             // number of the GPU in this process; 0 on the CPU
  bool operator==(const Device&) const = default;  // compares all fields
};
// Most GPUs that a process can use.
inline constexpr int kMaxDevices = 64;
// The GPU of that number, which is in [0, kMaxDevices).
constexpr Device cuda_device(int index) noexcept {
  return {DeviceType::cuda, static_cast<std::int16_t>(index)};
}

// Makes a type of yours an element: specialise it. A T then is `count` elements of `dtype`, with no
// other bytes between them, and ops work on each of those elements.
//
//     template <> struct c10d::element_traits<Vec3> {
//       static constexpr c10d::DType dtype = c10d::DType::f32;
//       static constexpr std::size_t count = 3;
//     };
template <class T>
struct element_traits {};

namespace detail {

constexpr DType integer_dtype(std::size_t size, bool is_signed) noexcept {
  switch (size) {
    case 1:
      return is_signed ? DType::i8 : DType::u8;
    case 2:
      return is_signed ? DType::i16 : DType::u16;
    case 4:
      return is_signed ? DType::i32 : DType::u32;
    default:
      return is_signed ? DType::i64 : DType::u64;
  }
}

// Two parts, whatever library it comes from.
template <class T>
concept Complex = std::is_class_v<T> && requires(const T& number) {
  typename T::value_type;
  number.real();
  number.imag();
} &&(std::is_same_v<typename T::value_type, float> ||
     std::is_same_v<typename T::value_type, double>)&&sizeof(T) ==
    2 * sizeof(typename T::value_type);

struct NoElement {
  static constexpr bool known = false;
};
template <DType value, std::size_t number = 1>
struct Elements {
  static constexpr bool known = true;
  static constexpr DType dtype = value;
  static constexpr std::size_t count = number;
};

// What a T is to an op. char has another sign on other machines, but is the same byte everywhere.
template <class T>
constexpr auto elements_of() noexcept {
  if constexpr (requires { element_traits<T>::dtype; }) {
    using Traits = element_traits<T>;
    static_assert(
        sizeof(T) == size_of(Traits::dtype) * Traits::count && std::is_trivially_copyable_v<T>,
        "c10d: element_traits<T> says a size that T does not have, or T is not trivially "
        "copyable");
    return Elements<Traits::dtype, Traits::count>();
  } else if constexpr (std::is_enum_v<T>) {
    return elements_of<std::underlying_type_t<T>>();
  } else if constexpr (std::is_same_v<T, bool>) {
    return Elements<DType::boolean>();
  } else if constexpr (std::is_same_v<T, char>) {
    return Elements<DType::u8>();
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= 8) {
    return Elements<integer_dtype(sizeof(T), std::is_signed_v<T>)>();
  } else if constexpr (std::is_same_v<T, float>) {
    return Elements<DType::f32>();
  } else if constexpr (std::is_same_v<T, double>) {
    return Elements<DType::f64>();
  } else if constexpr (std::is_same_v<T, Float16>) {
    return Elements<DType::f16>();
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return Elements<DType::bf16>();
  } else if constexpr (std::is_same_v<T, Float8E4M3>) {
    return Elements<DType::f8e4m3>();
  } else if constexpr (std::is_same_v<T, Float8E5M2>) {
    return Elements<DType::f8e5m2>();
#ifdef __FLT16_MAX__  // std::float16_t is the same type
  } else if constexpr (std::is_same_v<T, _Float16>) {
    return Elements<DType::f16>();
#endif
#ifdef __BFLT16_MAX__  // std::bfloat16_t is the same type
  } else if constexpr (std::is_same_v<T, __bf16>) {
    return Elements<DType::bf16>();
#endif
  } else if constexpr (Complex<T>) {
    return Elements < sizeof(typename T::value_type) == 4 ? DType::c64 : DType::c128 > ();
  } else {
    return NoElement();
  }
}

template <class T>
using ElementsOf = decltype(elements_of<std::remove_cv_t<T>>());

}  // namespace detail

// The C++ types that ops take: arithmetic types up to 64 bits, char and std::byte, enums, complex
// numbers, 16-bit and 8-bit floating point, and those of element_traits. Types are told apart by
// kind and size, so long and long long are the same dtype.
template <class T>
concept Element = detail::ElementsOf<T>::known;

// The DType of a C++ type: dtype_of<float> is DType::f32.
template <Element T>
inline constexpr DType dtype_of = detail::ElementsOf<T>::dtype;

// How many elements of that dtype one T is: 1, unless element_traits says otherwise.
template <Element T>
inline constexpr std::size_t elements_per = detail::ElementsOf<T>::count;

}}  // namespace c10d::v0
