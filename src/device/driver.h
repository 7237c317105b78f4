// SPDX-License-Identifier: BSD-3-Clause
// The functions of the CUDA driver, libcuda.so.1, that this library calls: declared here, found at
// run time. No header of CUDA is needed and nothing links it. tests/fake_gpu/declarations.cpp holds
// every line against cuda.h where that is found.
#pragma once

#include <cstddef>
#include <string>

// Opaque, and named as in cuda.h: handles of the runtime API are of the same types.
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace c10d { inline namespace v0 { namespace driver {

using Device = int;
using Pointer = unsigned long long;  // an address in the memory of a device
using Context = CUctx_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using Graph = CUgraph_st*;
using GraphExec = CUgraphExec_st*;
using HostFunction = void (*)(void*);

struct Uuid {
  char bytes[16];
};
struct IpcMemory {
  char reserved[64];
};

// What the functions return. Any other value is possible.
enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kContextIsDestroyed = 709,
  kCooperativeLaunchTooLarge = 720,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemDriverMismatch = 803,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureMerge = 902,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureIsolation = 905,
  kStreamCaptureImplicit = 906,
  kCapturedEvent = 907,
  kStreamCaptureWrongThread = 908,
};

enum DeviceAttribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxBlockX = 2,
  kMaxGridX = 5,
  kMaxGridY = 6,
  kSharedMemoryPerBlock = 8,
  kWarpSize = 10,
  kMultiprocessors = 16,
  kCanMapHostMemory = 19,
  kL2CacheBytes = 38,
  kThreadsPerMultiprocessor = 39,
  kUnifiedAddressing = 41,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kSharedMemoryPerMultiprocessor = 81,
  kRegistersPerMultiprocessor = 82,
  kCooperativeLaunch = 95,
  kSharedMemoryPerBlockOptin = 97,
  kBlocksPerMultiprocessor = 106,
  kMulticastSupported = 132,
};

enum PointerAttribute : int {
  kPointerContext = 1,
  kPointerMemoryType = 2,
  kPointerIsManaged = 8,
  kPointerDeviceOrdinal = 9,
  kPointerRangeStart = 11,
  kPointerRangeSize = 12,
};

enum MemoryType : int { kHostMemory = 1, kDeviceMemory = 2 };
enum StreamFlag : unsigned { kStreamDefault = 0, kStreamNonBlocking = 1 };
enum EventFlag : unsigned { kEventDefault = 0, kEventDisableTiming = 2, kEventInterprocess = 4 };
enum HostAllocFlag : unsigned { kHostAllocPortable = 1, kHostAllocDeviceMap = 2 };
enum IpcFlag : unsigned { kIpcLazyEnablePeerAccess = 1 };
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };
enum CaptureStatus : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2 };
enum FunctionAttribute : int { kMaxDynamicSharedMemory = 8 };

// F(member of the table, symbol, parameters...)
// clang-format off
#define C10D_DRIVER_FUNCTIONS(F)                                                                   \
  F(init, cuInit, unsigned)                                                                        \
  F(driver_get_version, cuDriverGetVersion, int*)                                                  \
  F(get_error_name, cuGetErrorName, Result, const char**)                                          \
  F(get_error_string, cuGetErrorString, Result, const char**)                                      \
  F(device_get, cuDeviceGet, Device*, int)                                                         \
  F(device_get_count, cuDeviceGetCount, int*)                                                      \
  F(device_get_name, cuDeviceGetName, char*, int, Device)                                          \
  F(device_get_uuid, cuDeviceGetUuid_v2, Uuid*, Device)                                            \
  F(device_get_attribute, cuDeviceGetAttribute, int*, DeviceAttribute, Device)                     \
  F(device_get_pci_bus_id, cuDeviceGetPCIBusId, char*, int, Device)                                \
  F(primary_retain, cuDevicePrimaryCtxRetain, Context*, Device)                                    \
  F(primary_release, cuDevicePrimaryCtxRelease_v2, Device)                                         \
  F(ctx_get_current, cuCtxGetCurrent, Context*)                                                    \
  F(ctx_push, cuCtxPushCurrent_v2, Context)                                                        \
  F(ctx_pop, cuCtxPopCurrent_v2, Context*)                                                         \
  F(ctx_get_device, cuCtxGetDevice, Device*)                                                       \
  F(ctx_synchronize, cuCtxSynchronize)                                                             \
  F(mem_get_info, cuMemGetInfo_v2, std::size_t*, std::size_t*)                                     \
  F(mem_alloc, cuMemAlloc_v2, Pointer*, std::size_t)                                               \
  F(mem_free, cuMemFree_v2, Pointer)                                                               \
  F(mem_host_alloc, cuMemHostAlloc, void**, std::size_t, unsigned)                                 \
  F(mem_free_host, cuMemFreeHost, void*)                                                           \
  F(memcpy_h2d_async, cuMemcpyHtoDAsync_v2, Pointer, const void*, std::size_t, Stream)             \
  F(memcpy_d2h_async, cuMemcpyDtoHAsync_v2, void*, Pointer, std::size_t, Stream)                   \
  F(memcpy_d2d_async, cuMemcpyDtoDAsync_v2, Pointer, Pointer, std::size_t, Stream)                 \
  F(memset_d8_async, cuMemsetD8Async, Pointer, unsigned char, std::size_t, Stream)                 \
  F(pointer_get_attributes, cuPointerGetAttributes, unsigned, PointerAttribute*, void**, Pointer)  \
  F(stream_create, cuStreamCreateWithPriority, Stream*, unsigned, int)                             \
  F(stream_destroy, cuStreamDestroy_v2, Stream)                                                    \
  F(stream_query, cuStreamQuery, Stream)                                                           \
  F(stream_synchronize, cuStreamSynchronize, Stream)                                               \
  F(stream_wait_event, cuStreamWaitEvent, Stream, Event, unsigned)                                 \
  F(stream_get_ctx, cuStreamGetCtx, Stream, Context*)                                              \
  F(stream_is_capturing, cuStreamIsCapturing, Stream, CaptureStatus*)                              \
  F(stream_begin_capture, cuStreamBeginCapture_v2, Stream, CaptureMode)                            \
  F(stream_end_capture, cuStreamEndCapture, Stream, Graph*)                                        \
  F(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, CaptureMode*)                        \
  F(graph_instantiate, cuGraphInstantiateWithFlags, GraphExec*, Graph, unsigned long long)         \
  F(graph_launch, cuGraphLaunch, GraphExec, Stream)                                                \
  F(graph_exec_destroy, cuGraphExecDestroy, GraphExec)                                             \
  F(graph_destroy, cuGraphDestroy, Graph)                                                          \
  F(event_create, cuEventCreate, Event*, unsigned)                                                 \
  F(event_destroy, cuEventDestroy_v2, Event)                                                       \
  F(event_record, cuEventRecord, Event, Stream)                                                    \
  F(event_query, cuEventQuery, Event)                                                              \
  F(event_synchronize, cuEventSynchronize, Event)                                                  \
  F(event_elapsed_time, cuEventElapsedTime, float*, Event, Event)                                  \
  F(module_load_data, cuModuleLoadData, Module*, const void*)                                      \
  F(module_get_function, cuModuleGetFunction, Function*, Module, const char*)                      \
  F(module_unload, cuModuleUnload, Module)                                                         \
  F(func_set_attribute, cuFuncSetAttribute, Function, FunctionAttribute, int)                      \
  F(launch_kernel, cuLaunchKernel, Function, unsigned, unsigned, unsigned, unsigned, unsigned,     \
    unsigned, unsigned, Stream, void**, void**)                                                    \
  F(launch_cooperative, cuLaunchCooperativeKernel, Function, unsigned, unsigned, unsigned,         \
    unsigned, unsigned, unsigned, unsigned, Stream, void**)                                        \
  F(launch_host_function, cuLaunchHostFunc, Stream, HostFunction, void*)                           \
  F(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor, int*, Function, int, std::size_t)      \
  F(ipc_get_mem_handle, cuIpcGetMemHandle, IpcMemory*, Pointer)                                    \
  F(ipc_open_mem_handle, cuIpcOpenMemHandle_v2, Pointer*, IpcMemory, unsigned)                     \
  F(ipc_close_mem_handle, cuIpcCloseMemHandle, Pointer)
// clang-format on

// The table. Every entry is there, or there is no table.
struct Api {
#define C10D_DECLARE(name, symbol, ...) Result (*name)(__VA_ARGS__) = nullptr;
  C10D_DRIVER_FUNCTIONS(C10D_DECLARE)
#undef C10D_DECLARE
  std::string path;  // of the library
  std::string why;   // why there is no table: one sentence; empty if there is one

  explicit operator bool() const { return why.empty(); }
};

constexpr const char* kLibrary = "libcuda.so.1";

// Opens the library and fills the table. Calls none of its functions.
Api open_api(const std::string& path);

}}}  // namespace c10d::v0::driver
