// SPDX-License-Identifier: BSD-3-Clause
#include "src/c/arguments.h"

#include <fmt/format.h>

#include <cstdlib>
#include <iterator>
#include <new>
#include <utility>

#include "c10d/error.h"

namespace c10d { inline namespace v0 { namespace c {
namespace {

constexpr std::pair<DType, c10d_dtypes> kDTypes[] = {
    {DType::f64, C10D_F64},       {DType::f32, C10D_F32},       {DType::f16, C10D_F16},
    {DType::bf16, C10D_BF16},     {DType::i64, C10D_I64},       {DType::i32, C10D_I32},
    {DType::i16, C10D_I16},       {DType::i8, C10D_I8},         {DType::u64, C10D_U64},
    {DType::u32, C10D_U32},       {DType::u16, C10D_U16},       {DType::u8, C10D_U8},
    {DType::boolean, C10D_BOOL},  {DType::c64, C10D_C64},       {DType::c128, C10D_C128},
    {DType::f8e4m3, C10D_F8E4M3}, {DType::f8e5m2, C10D_F8E5M2},
};
constexpr std::pair<ReduceOp::Kind, c10d_reduce_ops> kReduceOps[] = {
    {ReduceOp::sum, C10D_SUM}, {ReduceOp::avg, C10D_AVG},   {ReduceOp::prod, C10D_PROD},
    {ReduceOp::min, C10D_MIN}, {ReduceOp::max, C10D_MAX},   {ReduceOp::band, C10D_BAND},
    {ReduceOp::bor, C10D_BOR}, {ReduceOp::bxor, C10D_BXOR}, {ReduceOp::premul_sum, C10D_PREMUL_SUM},
};
constexpr std::pair<DeviceType, c10d_device_types> kDeviceTypes[] = {
    {DeviceType::cpu, C10D_CPU},
    {DeviceType::cuda, C10D_CUDA},
};

constexpr bool is_same(const auto& pairs, int count) {
  for (int i = 0; const auto& [ours, number] : pairs)
    if (static_cast<int>(ours) != i || number != i++) return false;
  return static_cast<int>(std::size(pairs)) == count;
}
static_assert(is_same(kDTypes, kDTypeCount), "the dtypes of C are those of C++");
static_assert(is_same(kReduceOps, kReduceOpCount), "the reductions of C are those of C++");
static_assert(is_same(kDeviceTypes, kDeviceTypeCount), "the devices of C are those of C++");

// The value of one of these tables.
template <class Pairs>
auto known(const Pairs& pairs, std::int32_t number, const char* name) {
  if (static_cast<std::size_t>(number) >= std::size(pairs))  // so is a negative one
    throw InvalidArgument(
        fmt::format("{} is {}: there are 0 to {}", name, number, std::size(pairs) - 1));
  return pairs[number].first;
}

// No struct of this interface is near that size.
constexpr std::size_t kLargestStruct = 4096;

}  // namespace

void refuse_null(const char* name) { throw InvalidArgument(fmt::format("{} is NULL", name)); }

c10d_bytes& bytes_of(c10d_bytes* argument, const char* name) {
  return required(argument, name) = {nullptr, 0};
}

std::string_view text_of(const char* argument, const char* name) {
  return &required(argument, name);
}

std::string text_or(const char* argument, std::string_view otherwise) {
  return std::string(argument == nullptr ? otherwise : argument);
}

std::string_view data_of(const void* argument, std::size_t size, const char* name) {
  if (argument == nullptr && size != 0) refuse_null(name);
  return {static_cast<const char*>(argument), size};
}

void give(c10d_bytes& to, std::optional<std::string_view> bytes) {
  if (!bytes) return;
  auto* const data = static_cast<char*>(std::malloc(bytes->size() + 1));
  if (data == nullptr) throw std::bad_alloc();
  data[bytes->copy(data, bytes->size())] = '\0';
  to = {data, bytes->size()};
}

std::optional<Duration> timeout_of(std::int64_t argument_ns) {
  return argument_ns < 0 ? std::nullopt : std::optional(Duration(argument_ns));
}

std::optional<Duration> timeout_of_field(std::int64_t field_ns) {
  return field_ns == 0 ? std::nullopt : std::optional(Duration(field_ns));
}

DType dtype_of_c(c10d_dtype dtype) { return known(kDTypes, dtype, "dtype"); }

ReduceOp::Kind reduce_kind_of(c10d_reduce_op op) { return known(kReduceOps, op, "reduce op"); }

DeviceType device_type_of(c10d_device_type type) {
  return known(kDeviceTypes, type, "device type");
}

Device device_of(const c10d_call_options& options) {
  const DeviceType type = device_type_of(options.device_type);
  const auto index = static_cast<std::int16_t>(options.device_index);
  if (index != options.device_index || index < 0)
    throw InvalidArgument(fmt::format("device_index is {}", options.device_index));
  return {type, index};
}

CallOptions call_options_of(const c10d_call_options& options) {
  if (options.batch != nullptr)
    throw InvalidArgument("batch is not NULL, and this is no op that a batch takes");
  return {.timeout = timeout_of_field(options.timeout_ns),
          .stream = static_cast<CudaStream>(options.stream)};
}

void check_struct(const void* argument, std::size_t size, std::size_t known, const char* name) {
  if (size < sizeof(std::size_t) || size > kLargestStruct)
    throw InvalidArgument(
        fmt::format("struct_size of {} is {}: begin with its initialiser", name, size));
  if (argument == nullptr || size <= known) return;
  const auto* const bytes = static_cast<const unsigned char*>(argument);
  if (std::any_of(bytes + known, bytes + size, [](unsigned char byte) { return byte != 0; }))
    throw InvalidArgument(
        fmt::format("{} has {} bytes and sets what this library does not know: it knows {}", name,
                    size, known));
}

extern "C" {

C10D_C_API void c10d_bytes_free(c10d_bytes* bytes) {
  if (bytes == nullptr) return;
  std::free(bytes->data);
  *bytes = {nullptr, 0};
}

}  // extern "C"

}}}  // namespace c10d::v0::c
