// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/nccl/library.h"

#include <fmt/format.h>

#include <array>

#include "c10d/cuda.h"
#include "c10d/env.h"
#include "c10d/error.h"

namespace c10d { inline namespace v0 { namespace nccl {
namespace {

constexpr std::array kPlaces = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                "/usr/local/cuda/lib/libnccl.so.2"};

Library open_library_once() {
  Library opened;
  opened.why = cuda::why_no_gpu();
  if (!opened.why.empty()) return opened;
  if (const auto path = env("C10D_NCCL_LIBRARY")) {
    opened.api = open_api(*path);
  } else {
    std::string first;
    for (const char* place : kPlaces) {
      opened.api = open_api(place);
      if (opened.api) break;
      if (first.empty()) first = opened.api.why;
    }
    if (!opened.api) opened.api.why = first;
  }
  opened.why = opened.api.why;
  return opened;
}

}  // namespace

const Library& library() {
  static const Library& opened = *new Library(open_library_once());  // its threads outlive statics
  return opened;
}

std::string describe(Result result) {
  const char* const words = api().get_error_string(result);
  std::string text = fmt::format("{} ({})", words ? words : "error", static_cast<int>(result));
  const char* const last = api().get_last_error(nullptr);
  if (last && *last != '\0') text += fmt::format(": {}", last);
  return text;
}

const char* own_version() {
  static const std::string version = version_text(api().version);
  return version.c_str();
}

std::optional<DataType> number_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return kFloat64;
    case DType::f32:
      return kFloat32;
    case DType::f16:
      return kFloat16;
    case DType::bf16:
      return kBfloat16;
    case DType::i64:
      return kInt64;
    case DType::i32:
      return kInt32;
    case DType::i8:
      return kInt8;
    case DType::u64:
      return kUint64;
    case DType::u32:
      return kUint32;
    case DType::u8:
      return kUint8;
    case DType::f8e4m3:
      return kFloat8e4m3;
    case DType::f8e5m2:
      return kFloat8e5m2;
    case DType::i16:
    case DType::u16:
    case DType::boolean:
    case DType::c64:
    case DType::c128:
      break;
  }
  return std::nullopt;
}

void check(Result result, std::string_view call) {
  if (result == kSuccess) return;
  throw_failure(
      {.code = Code::backend_error, .message = fmt::format("{}: {}", call, describe(result))});
}

}}}  // namespace c10d::v0::nccl
