// SPDX-License-Identifier: BSD-3-Clause
// Our own declarations of the driver and of NCCL against cuda.h and nccl.h. To compile is the test.
#include <cuda.h>
#ifdef C10D_TEST_NCCL_HEADER
#include <nccl.h>
#endif

#include <cstddef>
#include <cstdio>
#include <type_traits>

#include "src/backends/nccl/nccl.h"
#include "src/device/driver.h"
#include "tests/fake_gpu/same_as_real/more_functions.h"

namespace {

// Passed in the same way, and of the same meaning as far as types say it: handles are the same
// type, enums and integers of one size, structs of one size and alignment, pointers to such.
template <class Ours, class Theirs>
constexpr bool same() {
  if constexpr (std::is_same_v<Ours, Theirs>) {
    return true;
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using O = std::remove_pointer_t<Ours>;
    using T = std::remove_pointer_t<Theirs>;
    return std::is_const_v<O> == std::is_const_v<T> &&
           same<std::remove_const_t<O>, std::remove_const_t<T>>();
  } else if constexpr (std::is_enum_v<Theirs> || std::is_integral_v<Theirs>) {
    return (std::is_enum_v<Ours> || std::is_integral_v<Ours>)&&sizeof(Ours) == sizeof(Theirs);
  } else if constexpr (std::is_class_v<Ours> && std::is_class_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
  } else {
    return false;
  }
}

template <class Ours, class Theirs>
constexpr bool same_function = false;
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) constexpr bool same_function<R (*)(A...), S (*)(B...)> =
    same<R, S>() && (same<A, B>() && ...);

#define C10D_CHECK(name, symbol, ...) \
  static_assert(same_function<decltype(c10d::driver::Api::name), decltype(&symbol)>, #symbol);
C10D_DRIVER_FUNCTIONS(C10D_CHECK)
#undef C10D_CHECK
#define C10D_CHECK(name, symbol, ...) \
  static_assert(same_function<decltype(same_as_real::More::name), decltype(&symbol)>, #symbol);
C10D_MORE_FUNCTIONS(C10D_CHECK)
#undef C10D_CHECK
static_assert(offsetof(same_as_real::MemoryProperties, location) ==
              offsetof(CUmemAllocationProp, location));
static_assert(offsetof(same_as_real::MulticastProperties, size) ==
              offsetof(CUmulticastObjectProp, size));
static_assert(offsetof(same_as_real::MemoryAccess, flags) == offsetof(CUmemAccessDesc, flags));

#define SAME(ours, theirs) static_assert(int(c10d::driver::ours) == int(theirs), #theirs)
SAME(kSuccess, CUDA_SUCCESS);
SAME(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME(kDeinitialized, CUDA_ERROR_DEINITIALIZED);
SAME(kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
SAME(kNoDevice, CUDA_ERROR_NO_DEVICE);
SAME(kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
SAME(kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
SAME(kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
SAME(kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(kInvalidPtx, CUDA_ERROR_INVALID_PTX);
SAME(kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
SAME(kNotFound, CUDA_ERROR_NOT_FOUND);
SAME(kNotReady, CUDA_ERROR_NOT_READY);
SAME(kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME(kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(kCooperativeLaunchTooLarge, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
SAME(kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
SAME(kNotPermitted, CUDA_ERROR_NOT_PERMITTED);
SAME(kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
SAME(kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(kStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(kStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(kStreamCaptureMerge, CUDA_ERROR_STREAM_CAPTURE_MERGE);
SAME(kStreamCaptureUnmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
SAME(kStreamCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
SAME(kStreamCaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
SAME(kStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME(kCapturedEvent, CUDA_ERROR_CAPTURED_EVENT);
SAME(kStreamCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);

SAME(kMaxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(kMaxBlockX, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
SAME(kMaxGridX, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
SAME(kMaxGridY, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
SAME(kSharedMemoryPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
SAME(kWarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
SAME(kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(kCanMapHostMemory, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
SAME(kL2CacheBytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME(kThreadsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
SAME(kUnifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
SAME(kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(kSharedMemoryPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SAME(kRegistersPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
SAME(kCooperativeLaunch, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
SAME(kSharedMemoryPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(kBlocksPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
SAME(kMulticastSupported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);

SAME(kPointerContext, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(kPointerIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(kPointerRangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(kPointerRangeSize, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME(kHostMemory, CU_MEMORYTYPE_HOST);
SAME(kDeviceMemory, CU_MEMORYTYPE_DEVICE);
SAME(kStreamDefault, CU_STREAM_DEFAULT);
SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME(kEventDefault, CU_EVENT_DEFAULT);
SAME(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME(kEventInterprocess, CU_EVENT_INTERPROCESS);
SAME(kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
SAME(kHostAllocDeviceMap, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(kIpcLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME(kCaptureGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(kCaptureNone, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(kCaptureActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(kCaptureInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME(kMaxDynamicSharedMemory, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
#undef SAME

#ifdef C10D_TEST_NCCL_HEADER
#define C10D_CHECK(since, name, symbol, ...) \
  static_assert(same_function<decltype(c10d::nccl::Api::name), decltype(&symbol)>, #symbol);
C10D_NCCL_FUNCTIONS(C10D_CHECK)
#undef C10D_CHECK

#define SAME(ours, theirs) static_assert(int(c10d::nccl::ours) == int(theirs), #theirs)
SAME(kSuccess, ncclSuccess);
SAME(kUnhandledCudaError, ncclUnhandledCudaError);
SAME(kSystemError, ncclSystemError);
SAME(kInternalError, ncclInternalError);
SAME(kInvalidArgument, ncclInvalidArgument);
SAME(kInvalidUsage, ncclInvalidUsage);
SAME(kRemoteError, ncclRemoteError);
SAME(kInProgress, ncclInProgress);
SAME(kSum, ncclSum);
SAME(kProd, ncclProd);
SAME(kMax, ncclMax);
SAME(kMin, ncclMin);
SAME(kAvg, ncclAvg);
SAME(kInt8, ncclInt8);
SAME(kUint8, ncclUint8);
SAME(kInt32, ncclInt32);
SAME(kUint32, ncclUint32);
SAME(kInt64, ncclInt64);
SAME(kUint64, ncclUint64);
SAME(kFloat16, ncclFloat16);
SAME(kFloat32, ncclFloat32);
SAME(kFloat64, ncclFloat64);
SAME(kBfloat16, ncclBfloat16);
SAME(kFloat8e4m3, ncclFloat8e4m3);
SAME(kFloat8e5m2, ncclFloat8e5m2);
SAME(kScalarDevice, ncclScalarDevice);
SAME(kScalarHostImmediate, ncclScalarHostImmediate);
SAME(kShrinkDefault, NCCL_SHRINK_DEFAULT);
SAME(kShrinkAbort, NCCL_SHRINK_ABORT);
SAME(kWindowDefault, NCCL_WIN_DEFAULT);
SAME(kWindowSymmetric, NCCL_WIN_COLL_SYMMETRIC);
SAME(kNoColor, NCCL_SPLIT_NOCOLOR);
SAME(kUndefined, NCCL_CONFIG_UNDEF_INT);
#undef SAME

using Ours = c10d::nccl::Config;
#define SAME_PLACE(ours, theirs) \
  static_assert(offsetof(Ours, ours) == offsetof(ncclConfig_t, theirs), #theirs)
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
SAME_PLACE(traffic_class, trafficClass);
SAME_PLACE(comm_name, commName);
SAME_PLACE(collnet_enable, collnetEnable);
SAME_PLACE(cta_policy, CTAPolicy);
SAME_PLACE(shrink_share, shrinkShare);
SAME_PLACE(nvls_ctas, nvlsCTAs);
SAME_PLACE(channels_per_net_peer, nChannelsPerNetPeer);
SAME_PLACE(nvlink_centric_sched, nvlinkCentricSched);
static_assert(NCCL_VERSION_CODE >= 22900 || sizeof(ncclConfig_t) == c10d::nccl::kConfigBytes228);
static_assert(offsetof(ncclSimInfo_t, estimatedTime) ==
              offsetof(c10d::nccl::SimulationInfo, estimated_time));
constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
static_assert(kTheirs.magic == Ours{}.magic);
#endif

}  // namespace

int main() {
  std::printf("as in CUDA %d.%d", CUDA_VERSION / 1000, CUDA_VERSION / 10 % 100);
#ifdef C10D_TEST_NCCL_HEADER
  std::printf(" and NCCL %d.%d.%d", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
#endif
  std::printf("\n");
}
