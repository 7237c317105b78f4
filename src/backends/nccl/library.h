// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "c10d/spi/backend.h"
#include "src/backends/nccl/nccl.h"

namespace c10d { inline namespace v0 { namespace nccl {

// NCCL, opened at the first call.
struct Library {
  Api api;
  std::string why;  // why it cannot be used here: no GPU, no NCCL, too old; empty if it can
};
// C10D_NCCL_LIBRARY, or libnccl.so.2 where the loader looks, or that of the CUDA toolkit. It asks
// for a GPU first, and calls nothing of NCCL but its version: anything else opens sockets.
const Library& library();
// Of code that runs where it can be used.
inline const Api& api() { return library().api; }

// "2.28.9"; valid until the process ends.
const char* own_version();
// NCCL's type of these numbers; nothing where it does not compute with them.
std::optional<DataType> number_type(DType dtype);

// "unhandled cuda error (1)", with what NCCL remembers of it.
std::string describe(Result result);
// Throws backend_error unless the call of that name succeeded.
void check(Result result, std::string_view call);

}}}  // namespace c10d::v0::nccl
