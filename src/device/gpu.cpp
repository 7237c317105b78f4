// SPDX-License-Identifier: BSD-3-Clause
#include "src/device/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "c10d/cuda.h"
#include "c10d/env.h"
#include "c10d/error.h"
#include "src/base/mutex.h"

namespace c10d { inline namespace v0 {
namespace {

std::string words_of(const driver::Api& api, driver::Result result) {
  const char* text = nullptr;
  const char* name = nullptr;
  if (api.get_error_string(result, &text) != driver::kSuccess) text = nullptr;
  if (api.get_error_name(result, &name) != driver::kSuccess) name = nullptr;
  if (!text || !name) return fmt::format("error {}", static_cast<int>(result));
  return fmt::format("{} ({})", text, name);
}

Gpus open_gpus() {
  Gpus all;
  all.api = driver::open_api(env("C10D_CUDA_LIBRARY").value_or(driver::kLibrary));
  all.why = all.api.why;
  if (!all.why.empty()) return all;
  if (all.api.driver_get_version(&all.version) != driver::kSuccess) all.version = 0;
  driver::Result result = all.api.init(0);
  if (result == driver::kSuccess) result = all.api.device_get_count(&all.count);
  if (result == driver::kNoDevice || (result == driver::kSuccess && all.count == 0)) {
    all.why = "the CUDA driver sees no GPU; look at CUDA_VISIBLE_DEVICES";
  } else if (result != driver::kSuccess) {
    all.why = fmt::format("the CUDA driver {} cannot be used: {}", all.api.path,
                          words_of(all.api, result));
  }
  all.count = !all.why.empty() ? 0 : std::min(all.count, kMaxDevices);
  return all;
}

Code code_of(driver::Result result) noexcept {
  switch (result) {
    case driver::kOutOfMemory:
      return Code::out_of_resources;
    case driver::kNoBinaryForGpu:
    case driver::kUnsupportedPtxVersion:
    case driver::kNotSupported:
      return Code::unsupported;
    default:
      return Code::backend_error;
  }
}

}  // namespace

const Gpus& gpus() {
  static const Gpus& all = *new Gpus(open_gpus());  // threads of the driver outlive the statics
  return all;
}

std::string describe(driver::Result result) { return words_of(driver_api(), result); }

void throw_driver_error(driver::Result result, std::string_view what) {
  throw_failure(
      {.code = code_of(result), .message = fmt::format("{}: {}", what, describe(result))});
}

void require_gpu(int device) {
  const Gpus& all = gpus();
  if (!all.why.empty()) throw_failure({.code = Code::unsupported, .message = all.why});
  if (device < 0 || device >= all.count)
    throw InvalidArgument(
        fmt::format("cuda:{} is not there: this process has {} GPU{}, numbered "
                    "from 0",
                    device, all.count, all.count == 1 ? "" : "s"));
}

Device default_gpu(int local_rank) {
  require_gpu(0);
  const auto chosen = env_integer("C10D_DEVICE", 0, kMaxDevices - 1);
  return cuda_device(chosen ? static_cast<int>(*chosen) : local_rank % gpus().count);
}

driver::Context primary_context(int device) {
  static std::array<std::atomic<driver::Context>, kMaxDevices> retained{};
  static Mutex mutex;
  require_gpu(device);
  std::atomic<driver::Context>& context = retained[static_cast<std::size_t>(device)];
  if (driver::Context known = context.load(std::memory_order_acquire)) return known;
  const MutexLock lock(mutex);
  if (driver::Context known = context.load(std::memory_order_relaxed)) return known;
  driver::Context made = nullptr;
  check_driver(driver_api().primary_retain(&made, device),
               fmt::format("the primary context of cuda:{}", device));
  context.store(made, std::memory_order_release);
  return made;
}

OnGpu::OnGpu(int device) {
  const driver::Context context = primary_context(device);  // before the table, which may be empty
  check_driver(driver_api().ctx_push(context), "cuCtxPushCurrent");
}
OnGpu::~OnGpu() {
  driver::Context popped = nullptr;
  driver_api().ctx_pop(&popped);
}

std::string name_of(Device device) {
  if (device.type == DeviceType::cpu) return "the CPU";
  return fmt::format("{}:{}", to_string(device.type), device.index);
}

std::string uuid_of(int device) {
  require_gpu(device);
  driver::Uuid uuid{};
  check_driver(driver_api().device_get_uuid(&uuid, device),
               fmt::format("the UUID of cuda:{}", device));
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

namespace cuda {

int device_count() noexcept { return gpus().count; }
const std::string& why_no_gpu() noexcept { return gpus().why; }
DriverInfo driver_info() { return {.path = gpus().api.path, .version = gpus().version}; }

DeviceInfo device_info(int device) {
  require_gpu(device);
  const driver::Api& api = driver_api();
  const auto attribute = [&](driver::DeviceAttribute which) {
    int value = 0;
    check_driver(api.device_get_attribute(&value, which, device),
                 fmt::format("attribute {} of cuda:{}", static_cast<int>(which), device));
    return value;
  };
  DeviceInfo info;
  std::array<char, 256> text{};
  check_driver(api.device_get_name(text.data(), static_cast<int>(text.size()), device),
               fmt::format("the name of cuda:{}", device));
  info.name = text.data();
  check_driver(api.device_get_pci_bus_id(text.data(), static_cast<int>(text.size()), device),
               fmt::format("the PCI address of cuda:{}", device));
  info.pci_bus_id = text.data();
  info.uuid = uuid_of(device);
  info.l2_bytes = static_cast<std::size_t>(attribute(driver::kL2CacheBytes));
  info.multiprocessors = attribute(driver::kMultiprocessors);
  info.compute_capability =
      10 * attribute(driver::kComputeCapabilityMajor) + attribute(driver::kComputeCapabilityMinor);
  std::size_t free_bytes = 0;
  const OnGpu here(device);
  check_driver(api.mem_get_info(&free_bytes, &info.memory_bytes),
               fmt::format("the memory of cuda:{}", device));
  return info;
}

}  // namespace cuda
}}  // namespace c10d::v0
