// SPDX-License-Identifier: BSD-3-Clause
// Reductions that NCCL has not, or has with another meaning than collective.h: composed of its
// calls and kernels of this library, on the stream of the op.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "c10d/cuda.h"
#include "c10d/spi/backend.h"
#include "src/backends/nccl/calls.h"

namespace c10d { inline namespace v0 { namespace nccl {

// How such a reduction is composed; a reason why not where this build has no kernel for it.
Support supports_composed(const Query& query);
// Whether NCCL's own numbers do.
bool is_native_reduction(OpKind op, ReduceOp::Kind kind, DType dtype);

// The kernels and the memory of one group on its GPU, taken when the group is made: ops allocate
// nothing and load nothing.
class Composer {
 public:
  explicit Composer(Device device);
  // Enqueues a reduction that supports_composed() grants, in pieces that fit the memory. One op at
  // a time uses it: on its stream it waits for the one before. One that is captured waits for none,
  // and none waits for it: the program orders them. Never inside one of NCCL's groups.
  void enqueue(const Target& target, const Op& op);

 private:
  class Run;

  const Device device_;
  const int multiprocessors_;
  const Buffer<std::uint8_t> scratch_;
  const cuda::Event free_;  // behind the last op that used the scratch
  const std::shared_ptr<const std::map<std::string, cuda::Kernel, std::less<>>>
      kernels_;  // by name
};

}}}  // namespace c10d::v0::nccl
