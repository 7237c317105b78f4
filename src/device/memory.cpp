// SPDX-License-Identifier: BSD-3-Clause
// Memory of GPUs: cuda::device_allocate(), copy(), fill().
#include <fmt/format.h>

#include "c10d/cuda.h"
#include "c10d/error.h"
#include "src/base/log.h"
#include "src/device/gpu.h"

namespace c10d { inline namespace v0 {

void detail::refuse_host_access(Device device) {
  throw InvalidArgument(
      fmt::format("this Buffer is memory of {}, which host code cannot read or write: copy it "
                  "(cuda::copy), or use device_data() in a kernel",
                  name_of(device)));
}

namespace cuda {
namespace {

driver::Pointer address(const void* data) noexcept {
  return reinterpret_cast<driver::Pointer>(data);
}

void check_view(const char* call, const char* name, const ConstView& view) {
  if (view.device.type == DeviceType::cuda) require_gpu(view.device.index);
  if (view.data == nullptr && view.count != 0)
    throw InvalidArgument(
        fmt::format("{}: {} is null but has {} elements", call, name, view.count));
}

}  // namespace

Allocation device_allocate(std::size_t bytes, int device) {
  driver::Pointer made = 0;
  {
    const OnGpu here(device);
    if (bytes != 0)
      check_driver(driver_api().mem_alloc(&made, bytes),
                   fmt::format("device_allocate: {} bytes on cuda:{}", bytes, device));
  }
  void* const data = reinterpret_cast<void*>(made);
  const auto free_it = [device](void* memory) noexcept {
    if (memory == nullptr) return;
    try {
      const OnGpu here(device);
      check_driver(driver_api().mem_free(address(memory)), "cuMemFree");
    } catch (const std::exception& error) {
      log(LogLevel::warn, "memory of cuda:{} was not freed: {}", device, error.what());
    }
  };
  return {.data = data,
          .bytes = bytes,
          .owner = std::shared_ptr<void>(data, free_it),
          .device = cuda_device(device)};
}

void copy(View to, ConstView from, CudaStream stream) {
  check_view("copy", "to", to);
  check_view("copy", "from", from);
  if (to.count != from.count || to.dtype != from.dtype)
    throw InvalidArgument(fmt::format("copy: to has {} elements of {}, from has {} of {}", to.count,
                                      to_string(to.dtype), from.count, to_string(from.dtype)));
  const bool to_gpu = to.device.type == DeviceType::cuda;
  const bool from_gpu = from.device.type == DeviceType::cuda;
  if (!to_gpu && !from_gpu)
    throw InvalidArgument("copy: neither side is memory of a GPU: use std::copy");
  if (to.bytes() == 0) return;
  const OnGpu here(to_gpu ? to.device.index : from.device.index);
  const driver::Api& api = driver_api();
  const driver::Result result =
      to_gpu && from_gpu
          ? api.memcpy_d2d_async(address(to.data), address(from.data), to.bytes(), stream)
      : to_gpu ? api.memcpy_h2d_async(address(to.data), from.data, to.bytes(), stream)
               : api.memcpy_d2h_async(to.data, address(from.data), to.bytes(), stream);
  if (result != driver::kSuccess)
    throw_driver_error(result, fmt::format("copy of {} bytes", to.bytes()));
}

void fill(View memory, std::uint8_t value, CudaStream stream) {
  check_view("fill", "memory", memory);
  if (memory.device.type != DeviceType::cuda)
    throw InvalidArgument("fill: this is no memory of a GPU: use std::fill");
  if (memory.bytes() == 0) return;
  const OnGpu here(memory.device.index);
  const driver::Result result =
      driver_api().memset_d8_async(address(memory.data), value, memory.bytes(), stream);
  if (result != driver::kSuccess)
    throw_driver_error(result, fmt::format("fill of {} bytes", memory.bytes()));
}

}  // namespace cuda
}}  // namespace c10d::v0
