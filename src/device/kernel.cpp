// SPDX-License-Identifier: BSD-3-Clause
// cuda::Kernel: a module for each image and GPU, and the functions in it.
#include <fmt/format.h>

#include <map>
#include <tuple>
#include <utility>

#include "c10d/cuda.h"
#include "c10d/error.h"
#include "src/base/hash.h"
#include "src/base/mutex.h"
#include "src/device/gpu.h"

namespace c10d { inline namespace v0 { namespace cuda {
namespace {

// One image, loaded on one GPU.
struct LoadedModule {
  LoadedModule(const std::byte* image, int device_) : device(device_) {
    const OnGpu here(device);
    check_driver(driver_api().module_load_data(&module, image),
                 fmt::format("a kernel image on cuda:{}", device));
  }
  ~LoadedModule() {
    try {
      const OnGpu here(device);
      driver_api().module_unload(module);
    } catch (...) {  // the GPU is lost, and the module with it
    }
  }
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  const int device;
  driver::Module module = nullptr;
};

std::shared_ptr<LoadedModule> load(std::span<const std::byte> image, int device) {
  // By what it is: another image may lie at the same address later.
  using Key = std::tuple<std::uint64_t, std::size_t, int>;
  static Mutex mutex;
  static auto& loaded = *new std::map<Key, std::weak_ptr<LoadedModule>>;
  const MutexLock lock(mutex);
  std::weak_ptr<LoadedModule>& known = loaded[{hash_bytes(image), image.size(), device}];
  if (auto module = known.lock()) return module;
  auto module = std::make_shared<LoadedModule>(image.data(), device);
  known = module;
  return module;
}

}  // namespace

Kernel::Kernel(std::span<const std::byte> image, const std::string& name, int device)
    : device_(device) {
  require_gpu(device);
  if (image.empty()) throw InvalidArgument(fmt::format("kernel '{}': its image is empty", name));
  const auto module = load(image, device);
  driver::Function function = nullptr;
  const driver::Result result =
      driver_api().module_get_function(&function, module->module, name.c_str());
  if (result == driver::kNotFound)
    throw InvalidArgument(
        fmt::format("kernel '{}' is not in its image of {} bytes", name, image.size()));
  check_driver(result, fmt::format("kernel '{}' on cuda:{}", name, device));
  module_ = module;
  function_ = function;
}

void Kernel::launch_with(const Grid& grid, CudaStream stream, const void** arguments) const {
  const OnGpu here(device_);
  const auto function = static_cast<driver::Function>(function_);
  auto** const values = const_cast<void**>(arguments);
  const auto& [blocks, threads, shared_bytes, cooperative] = grid;
  const driver::Result result =
      cooperative
          ? driver_api().launch_cooperative(function, blocks.x, blocks.y, blocks.z, threads.x,
                                            threads.y, threads.z, shared_bytes, stream, values)
          : driver_api().launch_kernel(function, blocks.x, blocks.y, blocks.z, threads.x, threads.y,
                                       threads.z, shared_bytes, stream, values, nullptr);
  if (result != driver::kSuccess)
    throw_driver_error(
        result, fmt::format("launch of {}x{}x{} blocks of {}x{}x{} threads", blocks.x, blocks.y,
                            blocks.z, threads.x, threads.y, threads.z));
}

}}}  // namespace c10d::v0::cuda
