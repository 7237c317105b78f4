// SPDX-License-Identifier: BSD-3-Clause
// Functions of the driver that only the readings call.
#pragma once

#include "src/device/driver.h"

namespace same_as_real {

using Handle = unsigned long long;  // of memory that can be mapped
struct Location {
  int type = 1;  // a device
  int id = 0;
};
struct MemoryProperties {
  int type = 1;          // pinned
  int handle_types = 1;  // a descriptor
  Location location;
  void* win32 = nullptr;
  unsigned char compression = 0, gpu_direct_rdma = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
struct MemoryAccess {
  Location location;
  int flags = 3;  // read and write
};
struct MulticastProperties {
  unsigned devices = 1;
  std::size_t size = 0;
  unsigned long long handle_types = 1, flags = 0;
};

#define C10D_MORE_FUNCTIONS(F)                                                                   \
  F(primary_get_state, cuDevicePrimaryCtxGetState, int, unsigned*, int*)                         \
  F(ctx_set_current, cuCtxSetCurrent, CUctx_st*)                                                 \
  F(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange, int*, int*)                      \
  F(device_total_mem, cuDeviceTotalMem_v2, std::size_t*, int)                                    \
  F(memcpy_d2h, cuMemcpyDtoH_v2, void*, unsigned long long, std::size_t)                         \
  F(memcpy_h2d, cuMemcpyHtoD_v2, unsigned long long, const void*, std::size_t)                   \
  F(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2, unsigned long long*, void*,       \
    unsigned)                                                                                    \
  F(mem_granularity, cuMemGetAllocationGranularity, std::size_t*, const MemoryProperties*, int)  \
  F(mem_create, cuMemCreate, Handle*, std::size_t, const MemoryProperties*, unsigned long long)  \
  F(mem_release, cuMemRelease, Handle)                                                           \
  F(mem_reserve, cuMemAddressReserve, unsigned long long*, std::size_t, std::size_t,             \
    unsigned long long, unsigned long long)                                                      \
  F(mem_address_free, cuMemAddressFree, unsigned long long, std::size_t)                         \
  F(mem_map, cuMemMap, unsigned long long, std::size_t, std::size_t, Handle, unsigned long long) \
  F(mem_unmap, cuMemUnmap, unsigned long long, std::size_t)                                      \
  F(mem_set_access, cuMemSetAccess, unsigned long long, std::size_t, const MemoryAccess*,        \
    std::size_t)                                                                                 \
  F(mem_export, cuMemExportToShareableHandle, void*, Handle, int, unsigned long long)            \
  F(mem_import, cuMemImportFromShareableHandle, Handle*, void*, int)                             \
  F(multicast_create, cuMulticastCreate, Handle*, const MulticastProperties*)                    \
  F(func_get_attribute, cuFuncGetAttribute, int*, int, CUfunc_st*)

struct More {
#define C10D_DECLARE(name, symbol, ...) c10d::driver::Result (*name)(__VA_ARGS__) = nullptr;
  C10D_MORE_FUNCTIONS(C10D_DECLARE)
#undef C10D_DECLARE
};

}  // namespace same_as_real
