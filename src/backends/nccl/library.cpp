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

void check(Result result, std::string_view call) {
  if (result == kSuccess) return;
  throw_failure(
      {.code = Code::backend_error, .message = fmt::format("{}: {}", call, describe(result))});
}

}}}  // namespace c10d::v0::nccl
