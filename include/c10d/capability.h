// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/collective.h"

// The version of the library, what backends can do, and which ranks a group has: what tools and
// tests ask.
namespace c10d { inline namespace v0 {

// Version of these headers.
inline constexpr std::string_view kVersion = "0.1.0";  // CMakeLists.txt reads it from here

// Version of the library that is loaded, with compiler and build type: "0.1.0 (g++ 12.2.0,
// Release)".
C10D_API std::string version();

// Asks whether a backend can do an op: see ProcessGroup::supports().
struct Query {
  OpKind op;                                 // which op
  DType dtype = DType::f32;                  // of its buffers
  ReduceOp::Kind reduce_op = ReduceOp::sum;  // of reductions only
  DeviceType device = DeviceType::cpu;       // where its buffers lie
  // What messages also need, of send and recv only:
  bool any_source = false;         // recv from kAnySource
  bool tags_out_of_order = false;  // recv in another order of tags than the sends
  bool to_self = false;            // a message of a rank to itself
  // Whether the stream of the op is captured into a CUDA graph.
  bool captured = false;
};

// When a reduction of floating point of 16 or 8 bits rounds to its dtype.
enum class Rounding : std::uint8_t {
  once,       // at the end
  every_step  // after each addition, so the result depends on the order
};

// The answer to a Query.
struct Support {
  bool ok = true;        // whether the backend can do it
  std::string reason{};  // why not, when not ok
  // How the op is composed, when ok but the wrapped library has no such op: "all_to_all + sum".
  std::string composed{};
  // Of a reduction of f16, bf16, f8e4m3 or f8e5m2.
  Rounding rounds = Rounding::once;
  // Whether the backend can do it.
  explicit operator bool() const noexcept { return ok; }
};

// One rank of a group.
struct Member {
  int rank = 0;           // in the group
  std::string host;       // name of its host
  std::int64_t pid = 0;   // its process id there
  bool same_host = true;  // whether it is on the host of this rank
};

// Asks which algorithm a backend takes for a call: see ProcessGroup::plan().
struct PlanQuery {
  OpKind op = OpKind::all_reduce;  // which op
  DType dtype = DType::f32;        // of its buffers
  std::uint64_t bytes = 0;         // of the larger buffer of one rank
  bool registered = false;         // whether the buffers are from ProcessGroup::allocate()
};
// What is known of one backend without a group.
struct BackendInfo {
  std::string name;        // "native", "gloo", ...
  bool available = false;  // whether a group can be made with it
  std::string reason;      // why not, and which package has what is missing
  std::string version;     // of the wrapped library
  std::string path;        // of the module; empty when it is built in
  // Whether ranks must be processes that the wrapped library's launcher starts, as of MPI. False
  // where it is not available: then nobody knows.
  bool needs_launcher = false;
  bool cuda_only = false;  // whether it serves memory of GPUs only: see InitOptions::backend
};
// Every backend that this build knows or finds on C10D_BACKEND_PATH. Opens the modules.
C10D_API std::vector<BackendInfo> list_backends();
// The names that every build knows, whether or not their module was built. Opens nothing.
C10D_API std::span<const std::string_view> known_backend_names() noexcept;
// What backend `name` can do, without a group. For a backend that serves GPUs only, a query about
// host memory is answered for native. Throws DistBackendError (unsupported) when the backend is not
// available, or was registered: then only supports() of a group knows.
C10D_API Support backend_supports(std::string_view name, const Query& query);
}}  // namespace c10d::v0
