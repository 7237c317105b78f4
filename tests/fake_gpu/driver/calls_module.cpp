// SPDX-License-Identifier: BSD-3-Clause
// Modules, kernels, and the limits of a launch: those of an H100.
#include <algorithm>
#include <cstring>
#include <deque>

#include "tests/fake_gpu/driver/capture.h"
#include "tests/fake_gpu/driver/image.h"

namespace fake_gpu {
namespace {

struct Function;
struct Module {
  Context* context = nullptr;
  Image image;
  std::vector<cu::Function> functions;
};
struct Function {
  const Kernel* kernel = nullptr;
  Context* context = nullptr;
  std::atomic<std::size_t> most_shared{std::size_t{48} << 10};
};

Handles<Module, cu::Module>& modules() {
  static auto& all = *new Handles<Module, cu::Module>("module", 0x80000000);
  return all;
}
Handles<Function, cu::Function>& functions() {
  static auto& all = *new Handles<Function, cu::Function>("function", 0x90000000);
  return all;
}

struct Kernels {
  std::mutex mutex;
  std::deque<Kernel> all;
};
Kernels& kernels() {
  static Kernels& only = *new Kernels;
  return only;
}
const Kernel* find_kernel(const char* name) {
  const std::lock_guard lock(kernels().mutex);
  for (const Kernel& kernel : kernels().all) {
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  }
  return nullptr;
}

constexpr std::size_t kMultiprocessorsOfCard = 132, kThreads = 2048, kBlocks = 32;
constexpr std::size_t kRegisters = 65536, kSharedOfMultiprocessor = 233472;
constexpr std::size_t kSharedOptin = 232448, kSharedKept = 1024;

std::size_t rounded(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// How many blocks a multiprocessor holds at once.
std::size_t resident_blocks(const Function& function, std::size_t threads, std::size_t shared) {
  const std::size_t warps = (threads + 31) / 32;
  const std::size_t of_warp =
      rounded(static_cast<std::size_t>(function.kernel->registers) * 32, 256);
  const std::size_t bytes = rounded(function.kernel->shared_bytes + shared, 128) + kSharedKept;
  return std::min({kBlocks, kThreads / (warps * 32), kRegisters / of_warp / warps,
                   kSharedOfMultiprocessor / bytes});
}

struct Shape {
  std::size_t gx, gy, gz, bx, by, bz;
};
bool is_valid(const Shape& s) {
  const bool none = s.gx * s.gy * s.gz * s.bx * s.by * s.bz == 0;
  return !none && s.gx <= 2147483647 && s.gy <= 65535 && s.gz <= 65535 && s.bx <= 1024 &&
         s.by <= 1024 && s.bz <= 64 && s.bx * s.by * s.bz <= 1024;
}

cu::Result launch(const char* name, cu::Function handle, const Shape& shape, std::size_t shared,
                  cu::Stream stream_handle, void** parameters, bool cooperative) {
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Stream> stream = stream_of(stream_handle, why);
  if (!stream) return why;
  const std::shared_ptr<Function> function = functions().find(handle);
  if (!function) return cu::kInvalidHandle;
  if (stream->context != function->context) return cu::kInvalidHandle;
  const Kernel& kernel = *function->kernel;
  if (!is_valid(shape) || shared + kernel.shared_bytes > function->most_shared) {
    return cu::kInvalidValue;
  }
  if (cooperative && shape.gx * shape.gy * shape.gz >
                         kMultiprocessorsOfCard *
                             resident_blocks(*function, shape.bx * shape.by * shape.bz, shared)) {
    return cu::kCooperativeLaunchTooLarge;
  }
  // The driver copies the parameters too: the caller's may go.
  std::vector<std::vector<std::byte>> values;
  for (std::size_t i = 0; i < kernel.parameter_bytes.size(); ++i) {
    if (!parameters || !parameters[i]) return cu::kInvalidValue;
    const auto* const from = static_cast<const std::byte*>(parameters[i]);
    values.emplace_back(from, from + kernel.parameter_bytes[i]);
  }
  Op op;
  op.name = name;
  op.body = [=, values = std::move(values), &kernel](Running& running) mutable {
    std::vector<void*> places;
    for (auto& value : values) places.push_back(value.data());
    const Launch made{{unsigned(shape.gx), unsigned(shape.gy), unsigned(shape.gz)},
                      {unsigned(shape.bx), unsigned(shape.by), unsigned(shape.bz)},
                      unsigned(shared),
                      cooperative,
                      places.data()};
    kernel.body(made, running);
  };
  return submit(*stream, std::move(op));
}

}  // namespace

void register_kernel(Kernel kernel) {
  const std::lock_guard lock(kernels().mutex);
  kernels().all.push_back(std::move(kernel));
}

FAKE_GPU_API cuModuleLoadData(cu::Module* handle, const void* image) {
  FAKE_GPU_ENTER(kNeedsContext | kMayBlock);
  if (!handle || !image) return cu::kInvalidValue;
  Image read = read_image(image);
  if (read.result != cu::kSuccess) return read.result;
  const auto module = std::make_shared<Module>();
  module->context = current();
  module->image = std::move(read);
  *handle = modules().add(module);
  return synchronize(*current());  // it waits for what runs
}

FAKE_GPU_API cuModuleGetFunction(cu::Function* handle, cu::Module module_handle, const char* name) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!handle || !name) return cu::kInvalidValue;
  const std::shared_ptr<Module> module = modules().find(module_handle);
  if (!module) return cu::kInvalidHandle;
  if (const auto refused = refusal(*module->context)) return *refused;
  if (!*name) return cu::kInvalidValue;
  if (!module->image.has(name)) return cu::kNotFound;
  const Kernel* const kernel = find_kernel(name);
  if (!kernel) {
    violation("no body", std::string("the image has ") + name + ", but no body is registered");
    return cu::kNotFound;
  }
  for (const cu::Function made : module->functions) {
    if (functions().find(made)->kernel != kernel) continue;
    *handle = made;
    return cu::kSuccess;
  }
  const auto function = std::make_shared<Function>();
  function->kernel = kernel;
  function->context = module->context;
  module->functions.push_back(*handle = functions().add(function));
  return cu::kSuccess;
}

FAKE_GPU_API cuModuleUnload(cu::Module handle) {
  FAKE_GPU_ENTER(kNeedsInit | kMayBlock);  // in a capture: unproven
  const std::shared_ptr<Module> module = modules().find(handle);
  if (!module) return cu::kInvalidHandle;
  if (const auto refused = refusal(*module->context)) return *refused;
  if (const cu::Result result = synchronize(*module->context); result != cu::kSuccess)
    return result;
  modules().remove(handle);
  for (const cu::Function function : module->functions) functions().remove(function);
  return cu::kSuccess;
}

FAKE_GPU_API cuFuncSetAttribute(cu::Function handle, cu::FunctionAttribute attribute, int value) {
  FAKE_GPU_ENTER(kNeedsContext);
  const std::shared_ptr<Function> function = functions().find(handle);
  if (!function) return cu::kInvalidHandle;
  if (attribute != cu::kMaxDynamicSharedMemory || value < 0 ||
      static_cast<std::size_t>(value) > kSharedOptin - function->kernel->shared_bytes) {
    return cu::kInvalidValue;
  }
  function->most_shared = static_cast<std::size_t>(value) + function->kernel->shared_bytes;
  return cu::kSuccess;
}

FAKE_GPU_API cuFuncGetAttribute(int* value, int attribute, cu::Function handle) {
  FAKE_GPU_ENTER(kNeedsContext);
  const std::shared_ptr<Function> function = functions().find(handle);
  if (!function) return cu::kInvalidHandle;
  if (!value) return cu::kInvalidValue;
  switch (attribute) {
    case 0:
      *value = 1024;
      return cu::kSuccess;
    case 1:
      *value = static_cast<int>(function->kernel->shared_bytes);
      return cu::kSuccess;
    case 4:
      *value = function->kernel->registers;
      return cu::kSuccess;
    case 8:
      *value = static_cast<int>(function->most_shared.load());
      return cu::kSuccess;
    default:
      return cu::kInvalidValue;
  }
}

FAKE_GPU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, cu::Function handle,
                                                         int threads, std::size_t shared) {
  FAKE_GPU_ENTER(kNeedsContext);
  const std::shared_ptr<Function> function = functions().find(handle);
  if (!function) return cu::kInvalidHandle;
  if (!blocks || threads <= 0) return cu::kInvalidValue;
  const bool fits =
      threads <= 1024 && shared + function->kernel->shared_bytes <= function->most_shared;
  *blocks =
      fits ? static_cast<int>(resident_blocks(*function, static_cast<std::size_t>(threads), shared))
           : 0;
  return cu::kSuccess;
}

FAKE_GPU_API cuLaunchKernel(cu::Function function, unsigned gx, unsigned gy, unsigned gz,
                            unsigned bx, unsigned by, unsigned bz, unsigned shared,
                            cu::Stream stream, void** parameters, void** extra) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (extra) return cu::kInvalidValue;  // not modelled
  return launch(__func__, function, {gx, gy, gz, bx, by, bz}, shared, stream, parameters, false);
}

FAKE_GPU_API cuLaunchCooperativeKernel(cu::Function function, unsigned gx, unsigned gy, unsigned gz,
                                       unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                       cu::Stream stream, void** parameters) {
  FAKE_GPU_ENTER(kNeedsInit);
  return launch(__func__, function, {gx, gy, gz, bx, by, bz}, shared, stream, parameters, true);
}

}  // namespace fake_gpu
