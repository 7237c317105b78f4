// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "c10d/c.h"
#include "c10d/call.h"
#include "c10d/collective.h"
#include "c10d/element.h"

// What the C interface makes of arguments. What throws, throws InvalidArgument with the name of the
// argument.
namespace c10d { inline namespace v0 { namespace c {

[[noreturn]] void refuse_null(const char* name);

// What an argument points to, which must not be NULL.
template <class T>
T& required(T* argument, const char* name) {
  if (argument == nullptr) refuse_null(name);
  return *argument;
}

// The result that a function gives, empty as long as it has not succeeded.
template <class T>
T*& handle_of(T** argument, const char* name) {
  return required(argument, name) = nullptr;
}
c10d_bytes& bytes_of(c10d_bytes* argument, const char* name);

// A C string that must not be NULL.
std::string_view text_of(const char* argument, const char* name);
// A C string or, where it is NULL, `otherwise`.
std::string text_or(const char* argument, std::string_view otherwise);
// Bytes; NULL is allowed where there are none.
std::string_view data_of(const void* argument, std::size_t size, const char* name);

// The elements that an argument points to; NULL is allowed where there are none.
template <class T>
std::span<T> array_of(T* argument, std::size_t count, const char* name) {
  if (count != 0) required(argument, name);
  return {argument, count};
}

// Gives bytes, if there are any, that c10d_bytes_free() frees.
void give(c10d_bytes& to, std::optional<std::string_view> bytes);

// The timeout of an argument, and that of a field of a struct; nothing: the default.
std::optional<Duration> timeout_of(std::int64_t argument_ns);
std::optional<Duration> timeout_of_field(std::int64_t field_ns);

DType dtype_of_c(c10d_dtype dtype);
ReduceOp::Kind reduce_kind_of(c10d_reduce_op op);
DeviceType device_type_of(c10d_device_type type);
Device device_of(const c10d_call_options& options);
// Those of a call that is no op of a batch.
CallOptions call_options_of(const c10d_call_options& options);

// Throws unless a struct of `size` bytes can be taken: what is beyond the `known` bytes is zero.
void check_struct(const void* argument, std::size_t size, std::size_t known, const char* name);

// A struct that a caller filled, of any version of the header; all defaults where it is NULL.
template <class T>
T taken(const T* argument, const char* name) {
  T fields{};
  if (argument == nullptr) return fields;
  check_struct(argument, argument->struct_size, sizeof(T), name);
  std::memcpy(&fields, argument, std::min(argument->struct_size, sizeof(T)));
  return fields;
}

// Fills a struct of a caller, of any version of the header, but for its struct_size.
template <class T>
void fill(T* argument, T fields, const char* name) {
  const std::size_t size = required(argument, name).struct_size;
  check_struct(nullptr, size, sizeof(T), name);
  fields.struct_size = size;
  std::memcpy(static_cast<void*>(argument), &fields, std::min(size, sizeof(T)));
}

}}}  // namespace c10d::v0::c
