// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include "c10d/element.h"

namespace c10d { inline namespace v0 {

namespace detail {

// Instead of the concepts of <ranges>, which takes a third of the time to compile init.h.
template <class R>
concept Range = requires(R& r) {
  std::begin(r);
  std::end(r);
};
template <class R>
using Iterator = decltype(std::begin(std::declval<R&>()));
template <class R>
using Value = std::iter_value_t<Iterator<R>>;
template <class R>
concept Contiguous = Range<R> && std::contiguous_iterator<Iterator<R>> && requires(R& r) {
  std::data(r);
  std::size(r);
};
template <class R>
concept ElementRange = Contiguous<R> && Element<Value<R>>;
// Memory that does not end with the expression that names it.
template <class R>
concept Lasting =
    std::is_lvalue_reference_v<R> || std::ranges::enable_borrowed_range<std::remove_cvref_t<R>>;
template <class R>
concept Writable = !std::is_const_v<std::remove_reference_t<std::iter_reference_t<Iterator<R>>>>;
template <class R>
concept InputRange = ElementRange<R> && Lasting<R>;
template <class R>
concept OutputRange = InputRange<R> && Writable<R>;

// Ends the compilation with the reason why R is no buffer of an op.
template <class R, bool is_output>
constexpr void explain_no_buffer() noexcept {
  using T = Value<R>;
  if constexpr (!Contiguous<R>) {
    static_assert(
        Contiguous<R>,
        "c10d: this range is not contiguous memory of a known size (std::vector<bool> and "
        "std::list are not): copy it to a std::vector");
  } else if constexpr (!Element<T>) {
    static_assert(!std::is_pointer_v<T>,
                  "c10d: a pointer means nothing to another rank: send what it points to");
    static_assert(!std::is_floating_point_v<T>,
                  "c10d: long double differs between machines, so it is no element: use double");
    static_assert(
        std::is_pointer_v<T> || std::is_floating_point_v<T> || std::is_trivially_copyable_v<T>,
        "c10d: elements of this type own memory, so an op cannot take them: "
        "c10d/values.h sends strings, vectors and objects");
    static_assert(
        std::is_pointer_v<T> || std::is_floating_point_v<T> || !std::is_trivially_copyable_v<T>,
        "c10d: no DType is known for elements of this type: specialise "
        "c10d::element_traits, or use c10d/values.h");
  } else if constexpr (!Lasting<R>) {
    static_assert(Lasting<R>,
                  "c10d: this buffer is a temporary, which may end before the op does: give it a "
                  "name");
  } else {
    static_assert(!is_output || Writable<R>,
                  "c10d: an op writes to this buffer, and its elements are const");
  }
}

// A view of all of `range`: its own view() where it has one, as memory on a GPU needs.
template <class V, class R>
constexpr V view_of(R& range) noexcept {
  if constexpr (requires { V(range.view()); })
    return range.view();
  else
    return V(std::data(range), std::size(range));
}

template <class T>
concept NoRange = std::is_pointer_v<T> || std::is_arithmetic_v<T>;

// Ends the compilation with the reason why a T is no buffer of an op.
template <NoRange T>
constexpr void explain_no_range() noexcept {
  static_assert(!std::is_pointer_v<T>,
                "c10d: a pointer has no length: give a range, or View(pointer, count)");
  static_assert(!std::is_arithmetic_v<T>,
                "c10d: one value is no buffer: give std::span(&value, 1), or use c10d/values.h");
}

}  // namespace detail

struct ConstRows;
struct Rows;

// A view of contiguous elements that an op reads: pointer, count, dtype, device. It does not own
// the memory, which must stay valid until the op that uses it is done. Arrays, vectors, spans and
// Buffers of an Element type convert to it, but not temporaries that own their memory. A
// default-constructed view is "no buffer": ranks that neither give nor get data pass it.
struct ConstView {
  const void* data = nullptr;  // the first element
  std::size_t count = 0;       // number of elements
  DType dtype = DType::u8;     // type of the elements
  Device device{};             // where the memory lies

  // No buffer.
  ConstView() = default;
  // A view of `count_` elements at `data_`.
  constexpr ConstView(const void* data_, std::size_t count_, DType dtype_,
                      Device device_ = {}) noexcept
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  // A view of `n` objects at `data_`.
  template <Element T>
  constexpr ConstView(const T* data_, std::size_t n) noexcept
      : ConstView(data_, n * elements_per<T>, dtype_of<T>) {}
  // A view of a contiguous range. Of one that has a member view(): what that returns.
  template <detail::InputRange R>
  constexpr ConstView(R&& range) noexcept : ConstView(detail::view_of<ConstView>(range)) {}
  // Does not compile, and says why.
  template <detail::Range R>
  requires(!detail::InputRange<R>) constexpr ConstView(R&&) noexcept {
    detail::explain_no_buffer<R, false>();
  }
  // The same for a pointer or a single value.
  template <detail::NoRange T>
  constexpr ConstView(const T&) noexcept {
    detail::explain_no_range<T>();
  }

  // Size in bytes.
  constexpr std::size_t bytes() const noexcept { return count * size_of(dtype); }
  // A view of the elements [first, first + n). It does not check that they are inside this view.
  constexpr ConstView slice(std::size_t first, std::size_t n) const noexcept {
    return {static_cast<const std::byte*>(data) + first * size_of(dtype), n, dtype, device};
  }
  // Strided rows that begin with this view: see rows.h, which a program includes for it.
  C10D_API ConstRows rows(std::size_t rows, std::size_t length, std::size_t stride) const;
};

// A view of contiguous elements that an op writes. As ConstView otherwise; memory that is const
// does not convert to it.
struct View {
  void* data = nullptr;     // the first element
  std::size_t count = 0;    // number of elements
  DType dtype = DType::u8;  // type of the elements
  Device device{};          // where the memory lies

  // No buffer.
  View() = default;
  // A view of `count_` elements at `data_`.
  constexpr View(void* data_, std::size_t count_, DType dtype_, Device device_ = {}) noexcept
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  // A view of `n` objects at `data_`.
  template <Element T>
  requires(!std::is_const_v<T>) constexpr View(T* data_, std::size_t n) noexcept
      : View(data_, n * elements_per<T>, dtype_of<T>) {}
  // A view of a contiguous range whose elements are not const.
  template <detail::OutputRange R>
  constexpr View(R&& range) noexcept : View(detail::view_of<View>(range)) {}
  // Does not compile, and says why.
  template <detail::Range R>
  requires(!detail::OutputRange<R>) constexpr View(R&&) noexcept {
    detail::explain_no_buffer<R, true>();
  }
  // The same for a pointer or a single value.
  template <detail::NoRange T>
  constexpr View(const T&) noexcept {
    detail::explain_no_range<T>();
  }

  // The same view, to be read only.
  constexpr operator ConstView() const noexcept { return {data, count, dtype, device}; }
  // Size in bytes.
  constexpr std::size_t bytes() const noexcept { return count * size_of(dtype); }
  // A view of the elements [first, first + n). It does not check that they are inside this view.
  constexpr View slice(std::size_t first, std::size_t n) const noexcept {
    return {static_cast<std::byte*>(data) + first * size_of(dtype), n, dtype, device};
  }
  // Strided rows that begin with this view: see rows.h, which a program includes for it.
  C10D_API Rows rows(std::size_t rows, std::size_t length, std::size_t stride) const;
};

}}  // namespace c10d::v0
