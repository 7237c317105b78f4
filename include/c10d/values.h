// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "c10d/process_group.h"

// Values in, values out: single values, strings, vectors of any length, objects. Each call is made
// of blocking ops of the group: it is collective, throws what they throw, and costs a copy and, for
// what has a length, one more op of 8 bytes per rank. For large arrays use the ops themselves.
//
//     std::string name = c10d::broadcast(group, std::string("resnet"), 0);
//     std::vector<std::vector<int>> all = c10d::all_gather(group, mine);
//
// T is any trivially copyable type; what owns memory (a vector of strings, a map) is sent as an
// object. Ranks that pass different types or sizes get a mismatch, as for
// any op. Objects are sent by two functions of yours, which are found by argument-dependent lookup:
//
//     std::string to_bytes(const Shape& shape);
//     Shape from_bytes(std::string_view bytes, std::type_identity<Shape>);
namespace c10d { inline namespace v0 {

// Options of these calls, the same on every rank.
struct ValueOptions {
  // The most bytes that a call may bring to a rank, all values together. Lengths that other ranks
  // say are checked before memory is allocated: more throws InvalidArgument on every rank.
  std::size_t max_bytes = std::size_t{1} << 30;
  // Deadline of each op of the call, instead of the timeout of the group. Must be positive.
  std::optional<Duration> timeout{};
};

namespace detail {

template <class T>
concept HasBytes = requires(const T& value, std::string_view bytes) {
  { to_bytes(value) } -> std::convertible_to<std::string>;
  { from_bytes(bytes, std::type_identity<T>()) } -> std::convertible_to<T>;
};
// A value whose bytes are all there is.
template <class T>
concept PlainValue = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
                     !std::ranges::range<T> && !HasBytes<T>;
// std::vector<T>, std::string.
template <class C>
concept Sequence = std::ranges::contiguous_range<C> && PlainValue<std::ranges::range_value_t<C>> &&
    requires(C& c) {
  c.resize(std::size_t{1});
};
// What is neither is sent as an object.
template <class T>
concept Object = !PlainValue<T> && !Sequence<T>;
template <class T>
std::string bytes_of(const T& object) {
  static_assert(HasBytes<T>, "c10d: T is an object: write to_bytes() and from_bytes() for it");
  if constexpr (HasBytes<T>) return to_bytes(object);
}
template <class T>
T object_of(const std::string& bytes) {
  if constexpr (HasBytes<T>) return from_bytes(bytes, std::type_identity<T>());
}

template <class T>
auto view_of(T* data, std::size_t count) noexcept {
  using Result = std::conditional_t<std::is_const_v<T>, ConstView, View>;
  if constexpr (Element<std::remove_const_t<T>>)
    return Result(data, count);
  else
    return Result(data, count * sizeof(T), DType::u8);
}
// How many elements of the view one T is.
template <class T>
inline constexpr std::size_t view_elements = sizeof(T);
template <Element T>
inline constexpr std::size_t view_elements<T> = elements_per<T>;

// The sum of the counts. Throws InvalidArgument if so many elements of `size` bytes are more than
// max_bytes.
C10D_API std::size_t checked_total(std::span<const std::size_t> counts, std::size_t size,
                                   std::size_t max_bytes);

// The values of all ranks, by rank, on the root; without a root on every rank.
template <Sequence C>
std::vector<C> gather_sequences(const ProcessGroup& group, const C& mine, std::optional<int> root,
                                const ValueOptions& options) {
  using T = std::ranges::range_value_t<C>;
  const CallOptions call{.timeout = options.timeout};
  const std::size_t length = mine.size();
  std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()));
  group.all_gather(counts, std::span(&length, 1), call);
  C all;
  const std::size_t total = checked_total(counts, sizeof(T), options.max_bytes);
  const bool gets = !root || *root == group.rank();
  if (gets) all.resize(total);
  std::vector<std::size_t> view_counts = counts;
  for (std::size_t& count : view_counts) count *= view_elements<T>;
  const ConstView input = view_of(std::as_const(mine).data(), length);
  if (root)
    group.gather_v(view_of(all.data(), all.size()), input, view_counts, *root, call);
  else
    group.all_gather_v(view_of(all.data(), all.size()), input, view_counts, call);
  std::vector<C> parts;
  std::size_t first = 0;
  for (const std::size_t count : gets ? counts : std::vector<std::size_t>()) {
    parts.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(first),
                       all.begin() + static_cast<std::ptrdiff_t>(first + count));
    first += count;
  }
  return parts;
}

template <class T>
std::vector<T> from_all_bytes(const std::vector<std::string>& all) {
  std::vector<T> values;
  for (const std::string& bytes : all) values.push_back(object_of<T>(bytes));
  return values;
}

}  // namespace detail

// The root's value, on every rank.
template <detail::PlainValue T>
T broadcast(const ProcessGroup& group, T value, int root, const ValueOptions& options = {}) {
  group.broadcast(detail::view_of(&value, 1), root, {.timeout = options.timeout});
  return value;
}
// The root's string or vector, on every rank. The others pass any, an empty one for example.
template <detail::Sequence C>
C broadcast(const ProcessGroup& group, C value, int root, const ValueOptions& options = {}) {
  const std::size_t length = broadcast(group, value.size(), root, options);
  detail::checked_total(std::span(&length, 1), sizeof(*value.data()), options.max_bytes);
  value.resize(length);
  group.broadcast(detail::view_of(value.data(), length), root, {.timeout = options.timeout});
  return value;
}
// The root's text, on every rank.
inline std::string broadcast(const ProcessGroup& group, const char* text, int root,
                             const ValueOptions& options = {}) {
  return broadcast(group, std::string(text), root, options);
}
// The root's object, on every rank.
template <detail::Object T>
T broadcast(const ProcessGroup& group, const T& value, int root, const ValueOptions& options = {}) {
  const std::string mine = group.rank() == root ? detail::bytes_of(value) : std::string();
  return detail::object_of<T>(broadcast(group, mine, root, options));
}

// The values of all ranks, by rank, on every rank.
template <detail::PlainValue T>
std::vector<T> all_gather(const ProcessGroup& group, const T& mine,
                          const ValueOptions& options = {}) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group.all_gather(detail::view_of(all.data(), all.size()), detail::view_of(&mine, 1),
                   {.timeout = options.timeout});
  return all;
}
// The strings or vectors of all ranks, by rank, on every rank. Their lengths may differ.
template <detail::Sequence C>
std::vector<C> all_gather(const ProcessGroup& group, const C& mine,
                          const ValueOptions& options = {}) {
  return detail::gather_sequences(group, mine, {}, options);
}
// The objects of all ranks, by rank, on every rank.
template <detail::Object T>
std::vector<T> all_gather(const ProcessGroup& group, const T& mine,
                          const ValueOptions& options = {}) {
  return detail::from_all_bytes<T>(all_gather(group, detail::bytes_of(mine), options));
}

// The values of all ranks, by rank, on the root; nothing on the others.
template <detail::PlainValue T>
std::vector<T> gather(const ProcessGroup& group, const T& mine, int root,
                      const ValueOptions& options = {}) {
  std::vector<T> all(group.rank() == root ? static_cast<std::size_t>(group.size()) : 0);
  group.gather(detail::view_of(all.data(), all.size()), detail::view_of(&mine, 1), root,
               {.timeout = options.timeout});
  return all;
}
// The strings or vectors of all ranks, by rank, on the root; nothing on the others.
template <detail::Sequence C>
std::vector<C> gather(const ProcessGroup& group, const C& mine, int root,
                      const ValueOptions& options = {}) {
  return detail::gather_sequences(group, mine, root, options);
}
// The objects of all ranks, by rank, on the root; nothing on the others.
template <detail::Object T>
std::vector<T> gather(const ProcessGroup& group, const T& mine, int root,
                      const ValueOptions& options = {}) {
  return detail::from_all_bytes<T>(gather(group, detail::bytes_of(mine), root, options));
}

}}  // namespace c10d::v0
