// SPDX-License-Identifier: BSD-3-Clause
// What is told of a device: the figures of an H100 SXM.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "tests/fake_gpu/driver/context.h"
#include "tests/fake_gpu/driver/script.h"

namespace fake_gpu {
namespace {

// Beside those of the table in src/device: numbers of cuda.h.
const std::map<int, int>& attributes() {
  static const auto& all = *new std::map<int, int>{
      {cu::kMaxThreadsPerBlock, 1024},
      {cu::kMaxBlockX, 1024},
      {3, 1024},  // block y
      {4, 64},    // block z
      {cu::kMaxGridX, 2147483647},
      {cu::kMaxGridY, 65535},
      {7, 65535},  // grid z
      {cu::kSharedMemoryPerBlock, 49152},
      {cu::kWarpSize, 32},
      {12, 65536},  // registers of a block
      {15, 1},      // overlap
      {cu::kMultiprocessors, 132},
      {cu::kCanMapHostMemory, 1},
      {20, 0},  // compute mode
      {31, 1},  // concurrent kernels
      {cu::kL2CacheBytes, 52428800},
      {cu::kThreadsPerMultiprocessor, 2048},
      {40, 3},  // copy engines
      {cu::kUnifiedAddressing, 1},
      {cu::kComputeCapabilityMajor, 9},
      {cu::kComputeCapabilityMinor, 0},
      {cu::kSharedMemoryPerMultiprocessor, 233472},
      {cu::kRegistersPerMultiprocessor, 65536},
      {86, 0},  // host native atomics
      {88, 0},  // pageable memory access
      {89, 1},  // concurrent managed access
      {90, 1},  // compute preemption
      {cu::kCooperativeLaunch, 1},
      {cu::kSharedMemoryPerBlockOptin, 232448},
      {cu::kBlocksPerMultiprocessor, 32},
      {102, 1},                      // virtual memory
      {103, 1},                      // descriptors of memory
      {111, 1024},                   // shared memory that the driver keeps of a block
      {115, 1},                      // memory pools
      {116, 1},                      // GPUDirect RDMA
      {124, 1},                      // dma_buf
      {128, 1},                      // fabric handles
      {cu::kMulticastSupported, 0},  // not modelled
  };
  return all;
}

// As snprintf does: cut, and ended by a 0.
void copy_text(char* to, int length, const std::string& text) {
  if (length <= 0) return;
  const std::size_t count = std::min(text.size(), static_cast<std::size_t>(length) - 1);
  std::memcpy(to, text.data(), count);
  to[count] = 0;
}

}  // namespace

FAKE_GPU_API cuDeviceGetCount(int* count) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!count) return cu::kInvalidValue;
  *count = static_cast<int>(contexts().size());
  return cu::kSuccess;
}

FAKE_GPU_API cuDeviceGet(cu::Device* device, int ordinal) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!device) return cu::kInvalidValue;
  if (!context_of_device(ordinal)) return cu::kInvalidDevice;
  *device = ordinal;
  return cu::kSuccess;
}

FAKE_GPU_API cuDeviceGetName(char* name, int length, cu::Device device) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!context_of_device(device)) return cu::kInvalidDevice;
  if (!name) return cu::kInvalidValue;
  copy_text(name, length, "NVIDIA H100 stand-in");
  return cu::kSuccess;
}

FAKE_GPU_API cuDeviceGetUuid_v2(cu::Uuid* uuid, cu::Device device) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!context_of_device(device)) return cu::kInvalidDevice;
  if (!uuid) return cu::kInvalidValue;
  std::memcpy(uuid->bytes, "fake GPU number", 15);
  uuid->bytes[15] = static_cast<char>(context_of_device(device)->card + 1);
  return cu::kSuccess;
}

FAKE_GPU_API cuDeviceGetAttribute(int* value, cu::DeviceAttribute attribute, cu::Device device) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!value) return cu::kInvalidValue;
  if (!context_of_device(device)) return cu::kInvalidDevice;
  const auto found = attributes().find(static_cast<int>(attribute));
  if (found == attributes().end()) return cu::kInvalidValue;
  *value = found->second;
  return cu::kSuccess;
}

FAKE_GPU_API cuDeviceGetPCIBusId(char* name, int length, cu::Device device) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!context_of_device(device)) return cu::kInvalidDevice;
  if (!name) return cu::kInvalidValue;
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", 0x10 + context_of_device(device)->card);
  if (length <= static_cast<int>(std::strlen(text))) return cu::kInvalidValue;
  copy_text(name, length, text);
  return cu::kSuccess;
}

FAKE_GPU_API cuDeviceTotalMem_v2(std::size_t* bytes, cu::Device device) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!context_of_device(device)) return cu::kInvalidDevice;
  if (!bytes) return cu::kInvalidValue;
  *bytes = script().memory;
  return cu::kSuccess;
}

}  // namespace fake_gpu
