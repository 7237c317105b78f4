// SPDX-License-Identifier: BSD-3-Clause
// The functions of NCCL, libnccl.so.2, that this library calls: declared here, found at run time.
// tests/fake_gpu/declarations.cpp holds every line against nccl.h where that is found.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "src/device/driver.h"

// Opaque, and named as in nccl.h.
struct ncclComm;
struct ncclWindow_vidmem;

namespace c10d { inline namespace v0 { namespace nccl {

using Comm = ncclComm*;
using Window = ncclWindow_vidmem*;
using Stream = driver::Stream;

struct UniqueId {
  char internal[128];
};

// Any other value is possible: later versions have more.
enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };
enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};
enum ScalarResidence : int { kScalarDevice = 0, kScalarHostImmediate = 1 };
enum ShrinkFlag : int { kShrinkDefault = 0, kShrinkAbort = 1 };
enum WindowFlag : int { kWindowDefault = 0, kWindowSymmetric = 1 };
constexpr int kNoColor = -1;
constexpr int kUndefined = INT_MIN;

// What a library of 2.18 or newer takes: each version knows the fields up to its own end, and
// `size` says how far ours go.
struct Config {
  std::size_t size = 0;
  unsigned magic = 0xcafebeef;
  unsigned version = 0;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;     // 2.18
  int traffic_class = kUndefined;   // 2.26
  const char* comm_name = nullptr;  // 2.27
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_net_peer = kUndefined;  // 2.28
  int nvlink_centric_sched = kUndefined;
};
constexpr std::size_t kConfigBytes218 = 48;
constexpr std::size_t kConfigBytes228 = 80;

struct SimulationInfo {
  std::size_t size = sizeof(SimulationInfo);
  unsigned magic = 0x74685283;
  unsigned version = 0;
  float estimated_time = -1;
};

// F(first version that has it, member of the table, symbol, result, parameters...)
// clang-format off
#define C10D_NCCL_FUNCTIONS(F)                                                                     \
  F(21800, get_version, ncclGetVersion, Result, int*)                                              \
  F(21800, get_unique_id, ncclGetUniqueId, Result, UniqueId*)                                      \
  F(21800, get_error_string, ncclGetErrorString, const char*, Result)                              \
  F(21800, get_last_error, ncclGetLastError, const char*, Comm)                                    \
  F(21800, comm_init_rank_config, ncclCommInitRankConfig, Result, Comm*, int, UniqueId, int,       \
    Config*)                                                                                       \
  F(21800, comm_finalize, ncclCommFinalize, Result, Comm)                                          \
  F(21800, comm_destroy, ncclCommDestroy, Result, Comm)                                            \
  F(21800, comm_abort, ncclCommAbort, Result, Comm)                                                \
  F(21800, comm_split, ncclCommSplit, Result, Comm, int, int, Comm*, Config*)                      \
  F(21800, comm_get_async_error, ncclCommGetAsyncError, Result, Comm, Result*)                     \
  F(21800, comm_count, ncclCommCount, Result, Comm, int*)                                          \
  F(21800, comm_cu_device, ncclCommCuDevice, Result, Comm, int*)                                   \
  F(21800, comm_user_rank, ncclCommUserRank, Result, Comm, int*)                                   \
  F(21800, red_op_create, ncclRedOpCreatePreMulSum, Result, RedOp*, void*, DataType,               \
    ScalarResidence, Comm)                                                                         \
  F(21800, red_op_destroy, ncclRedOpDestroy, Result, RedOp, Comm)                                  \
  F(21800, all_reduce, ncclAllReduce, Result, const void*, void*, std::size_t, DataType, RedOp,    \
    Comm, Stream)                                                                                  \
  F(21800, reduce, ncclReduce, Result, const void*, void*, std::size_t, DataType, RedOp, int,      \
    Comm, Stream)                                                                                  \
  F(21800, broadcast, ncclBroadcast, Result, const void*, void*, std::size_t, DataType, int,       \
    Comm, Stream)                                                                                  \
  F(21800, reduce_scatter, ncclReduceScatter, Result, const void*, void*, std::size_t, DataType,   \
    RedOp, Comm, Stream)                                                                           \
  F(21800, all_gather, ncclAllGather, Result, const void*, void*, std::size_t, DataType, Comm,     \
    Stream)                                                                                        \
  F(21800, send, ncclSend, Result, const void*, std::size_t, DataType, int, Comm, Stream)          \
  F(21800, recv, ncclRecv, Result, void*, std::size_t, DataType, int, Comm, Stream)                \
  F(21800, group_start, ncclGroupStart, Result)                                                    \
  F(21800, group_end, ncclGroupEnd, Result)                                                        \
  F(21900, mem_alloc, ncclMemAlloc, Result, void**, std::size_t)                                   \
  F(21900, mem_free, ncclMemFree, Result, void*)                                                   \
  F(21900, comm_register, ncclCommRegister, Result, Comm, void*, std::size_t, void**)              \
  F(21900, comm_deregister, ncclCommDeregister, Result, Comm, void*)                               \
  F(22200, group_simulate_end, ncclGroupSimulateEnd, Result, SimulationInfo*)                      \
  F(22700, comm_shrink, ncclCommShrink, Result, Comm, int*, int, Comm*, Config*, int)              \
  F(22700, window_register, ncclCommWindowRegister, Result, Comm, void*, std::size_t, Window*,     \
    int)                                                                                           \
  F(22700, window_deregister, ncclCommWindowDeregister, Result, Comm, Window)                      \
  F(22803, all_to_all, ncclAlltoAll, Result, const void*, void*, std::size_t, DataType, Comm,      \
    Stream)                                                                                        \
  F(22803, gather, ncclGather, Result, const void*, void*, std::size_t, DataType, int, Comm,       \
    Stream)                                                                                        \
  F(22803, scatter, ncclScatter, Result, const void*, void*, std::size_t, DataType, int, Comm,     \
    Stream)                                                                                        \
  F(22807, comm_revoke, ncclCommRevoke, Result, Comm, int)
// clang-format on

constexpr int kOldestVersion = 21800;
constexpr int kFirstWithFloat8 = 22400;  // in reductions
constexpr const char* kLibrary = "libnccl.so.2";

// The table. Functions that are newer than `version` are null.
struct Api {
#define C10D_DECLARE(since, name, symbol, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  C10D_NCCL_FUNCTIONS(C10D_DECLARE)
#undef C10D_DECLARE
  int version = 0;   // 22809 is 2.28.9
  std::string path;  // of the library
  std::string why;   // why there is no table: one sentence; empty if there is one

  explicit operator bool() const { return why.empty(); }
};

// "2.28.9"
std::string version_text(int version);

// Opens the library, asks its version and fills the table.
Api open_api(const std::string& path);

}}}  // namespace c10d::v0::nccl
