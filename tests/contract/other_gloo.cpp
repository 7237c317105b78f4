// SPDX-License-Identifier: BSD-3-Clause
// A library with a Gloo of its own, as PyTorch's builds of libtorch_cpu.so are.
namespace gloo {

class BarrierOptions;
__attribute__((visibility("default"))) void barrier(BarrierOptions& options);
void barrier(BarrierOptions&) {}

}  // namespace gloo
