// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "c10d/cuda.h"
#include "c10d/parallel/reproducible.h"
#include "kernels/cuda/launch.h"

// The arithmetic of reproducible.h on a GPU, with the bits of the CPU.
namespace c10d { inline namespace v0 { namespace parallel {

inline bool is_on_gpu(const ConstView& view) noexcept {
  return view.device.type != DeviceType::cpu;
}
// Throw InvalidArgument, which begins with `who`: unless both lie on one GPU, or on the host ...
void check_same_memory(std::string_view who, const ConstView& a, const ConstView& b);
// ... unless a stream comes with a GPU alone.
void check_stream(std::string_view who, Device device, CudaStream stream);

// On one GPU, in the order of one stream. Kernels are kept once they are loaded.
class GpuSums {
 public:
  // Errors begin with `who`. Throws DistBackendError (unsupported) where this build has no kernels.
  GpuSums(std::string_view who, Device device, CudaStream stream);

  // Loads all kernels for that dtype, f32 or f64. Else each is loaded when it is first needed, and
  // that may wait for all work on the GPU.
  void load(DType dtype);
  // to += from. Both have one dtype, f32 or f64, and one count.
  void add(const View& to, const ConstView& from);
  // value /= divisor, of f16, bf16, f32 or f64. 1 does nothing.
  void divide(const View& value, double divisor);
  // out = the root of the tree over [0, shards) / divisor, as fold() of merge_plan.h. It overwrites
  // the values. `out` lies apart from them.
  void fold(const View& out, int shards, std::span<const ShardRange> nodes,
            std::span<const View> values, double divisor);

 private:
  // A node of the tree, and which of the values it is made of: [first, last).
  struct Part {
    ShardRange node;
    std::size_t first, last;
    std::size_t count() const noexcept { return last - first; }
  };
  class Fold;

  const cuda::Kernel& loaded(const cuda_kernels::Kernel& kernel);
  void launch(const cuda_kernels::Kernel& kernel, const cuda_kernels::Arguments& arguments);

  const Device device_;
  const CudaStream stream_;
  const int multiprocessors_;
  std::map<std::string_view, cuda::Kernel> kernels_;  // by name
};

}}}  // namespace c10d::v0::parallel
