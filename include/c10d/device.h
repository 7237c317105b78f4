// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

#include "c10d/export.h"

struct CUstream_st;  // of CUDA

// Reserved: every backend of this version refuses all devices but the CPU. What names a GPU in the
// other headers (View::device, CallOptions::stream, Work::synchronize_stream()) comes from here.
namespace c10d { inline namespace v0 {

// Where memory lies.
enum class DeviceType : std::uint8_t {
  cpu,  // memory of the host
  cuda  // memory of a CUDA GPU; reserved
};
// Number of device types.
inline constexpr int kDeviceTypeCount = 2;
// Name of a device type: "cpu" or "cuda".
C10D_API std::string_view to_string(DeviceType type) noexcept;

// One device.
struct Device {
  DeviceType type = DeviceType::cpu;               // what kind of device
  std::int16_t index = 0;                          // CUDA ordinal; 0 on the CPU
  bool operator==(const Device&) const = default;  // compares all fields
};

// A CUDA stream: the type that CUDA calls cudaStream_t. Reserved.
using CudaStream = CUstream_st*;

}}  // namespace c10d::v0
