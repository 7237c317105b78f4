// SPDX-License-Identifier: BSD-3-Clause
// The CUDA kernels that collectives are composed with, held against a copy on the same GPU in the
// same run. A row is the median of 20 launches, timed by the GPU, over buffers that are together
// four times its L2. "of_copy" is the rate of the bytes that the kernel reads and writes, divided
// by that of the copy.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "c10d/cuda.h"
#include "kernels/cuda/launch.h"

namespace c10d { namespace {

constexpr int kDevice = 0;
constexpr int kLaunches = 20;

// Bytes of all buffers, and whole pieces of any element.
std::uint64_t working_set() {
  constexpr std::uint64_t kWhole = std::uint64_t{1} << 20;
  return (4 * cuda::device_info(kDevice).l2_bytes + kWhole) / kWhole * kWhole;
}

// Seconds of one of `enqueue`, the median of kLaunches.
template <class Enqueue>
double seconds_of(const cuda::Stream& stream, Enqueue&& enqueue) {
  const cuda::Event start(kDevice, cuda::Event::Timing::on), stop(kDevice, cuda::Event::Timing::on);
  std::array<double, kLaunches> times{};
  enqueue();  // what a first launch loads
  for (double& time : times) {
    start.record(stream);
    enqueue();
    stop.record(stream);
    stop.synchronize();
    time = static_cast<double>(stop.milliseconds_since(start)) * 1e-3;
  }
  std::sort(times.begin(), times.end());
  return (times[kLaunches / 2 - 1] + times[kLaunches / 2]) / 2;
}

View bytes_at(const Allocation& memory, std::uint64_t first, std::uint64_t count) {
  return {static_cast<std::byte*>(memory.data) + first, count, DType::u8, memory.device};
}

// Bytes per second that a copy reads and writes, measured once.
double copy_rate(const cuda::Stream& stream) {
  static const double rate = [&] {
    const std::uint64_t half = working_set() / 2;
    const Allocation memory = cuda::device_allocate(2 * half, kDevice);
    cuda::fill(bytes_at(memory, 0, 2 * half), 0x3f, stream);
    return static_cast<double>(2 * half) / seconds_of(stream, [&] {
             cuda::copy(bytes_at(memory, half, half), bytes_at(memory, 0, half), stream);
           });
  }();
  return rate;
}

struct KernelCase {
  std::string name;
  cuda_kernels::Kernel kernel;
  std::uint64_t in_bytes, out_bytes;  // of an element
  std::uint64_t operands = 1;         // 2: another input of the same type
  std::uint64_t inputs = 1;           // of a fold
};

// Bits that are ordinary numbers in every dtype.
void run_kernel(benchmark::State& state, const KernelCase& c) {
  const cuda::Stream stream(kDevice);
  const std::uint64_t per_element = c.in_bytes * c.operands * c.inputs + c.out_bytes;
  const std::uint64_t count =
      (working_set() / per_element / cuda_kernels::kPiece + 1) * cuda_kernels::kPiece;
  const Allocation memory = cuda::device_allocate(count * per_element, kDevice);
  cuda::fill(bytes_at(memory, 0, memory.bytes), 0x3f, stream);
  auto* const in = static_cast<std::byte*>(memory.data);
  auto* const out = in + count * c.in_bytes * c.operands * c.inputs;
  cuda_kernels::Arguments arguments =
      cuda_kernels::arguments_of({.out = out,
                                  .in = in,
                                  .other = c.operands == 2 ? in + count * c.in_bytes : nullptr,
                                  .count = count});
  arguments.inputs = c.inputs;
  arguments.stride = count * c.in_bytes;
  arguments.divisor = 3;
  const cuda::Kernel kernel(c.kernel.image, c.kernel.name, kDevice);
  const unsigned blocks =
      cuda_kernels::blocks_for(arguments.pieces, cuda::device_info(kDevice).multiprocessors);
  const double copied = copy_rate(stream);
  double seconds = 0;
  for (auto _ : state) {
    seconds = seconds_of(stream, [&] {
      kernel.launch({.blocks = {.x = blocks}, .threads = {.x = cuda_kernels::kThreads}}, stream,
                    arguments);
    });
    state.SetIterationTime(seconds);
  }
  const double rate = static_cast<double>(count * per_element) / seconds;
  state.counters["GB/s"] = rate * 1e-9;
  state.counters["copy_GB/s"] = copied * 1e-9;
  state.counters["of_copy_%"] = 100 * rate / copied;
  const cuda::DeviceInfo info = cuda::device_info(kDevice);
  state.SetLabel(info.name + ", CUDA by " + cuda::driver_info().path);
}

const bool kernels_registered = [] {
  using Kind = ReduceOp::Kind;
  constexpr std::uint64_t kInputs = 8;
  const KernelCase cases[] = {
      {"cast_f32_bf16", cuda_kernels::cast_kernel(DType::f32, DType::bf16), 4, 2},
      {"cast_f16_f32", cuda_kernels::cast_kernel(DType::f16, DType::f32), 2, 4},
      {"cast_i16_i32", cuda_kernels::cast_kernel(DType::i16, DType::i32), 2, 4},
      {"to_keys_min_f32", cuda_kernels::to_keys_kernel(Kind::min, DType::f32), 4, 4},
      {"from_keys_f32", cuda_kernels::from_keys_kernel(DType::f32), 4, 4},
      {"divide_f32", cuda_kernels::divide_kernel(DType::f32, DType::f32), 4, 4},
      {"parity", cuda_kernels::parity_kernel(), 1, 1},
      {"band_i32", cuda_kernels::combine_kernel(Kind::band, DType::i32), 4, 4, 2},
      {"add_f32", cuda_kernels::combine_kernel(Kind::sum, DType::f32), 4, 4, 2},
      {"fold_8_f32", cuda_kernels::fold_kernel(Kind::sum, DType::f32, kInputs), 4, 4, 1, kInputs},
      {"fold_8_bf16", cuda_kernels::fold_kernel(Kind::sum, DType::bf16, kInputs), 2, 2, 1,
       kInputs}};
  for (const KernelCase& c : cases)
    benchmark::RegisterBenchmark(("cuda/" + c.name).c_str(),
                                 [c](benchmark::State& state) {
                                   std::string why = cuda::why_no_gpu();
                                   if (why.empty()) why = cuda_kernels::why_none();
                                   if (why.empty()) return run_kernel(state, c);
                                   state.SkipWithError(why.c_str());
                                 })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  return true;
}();

}}  // namespace c10d
