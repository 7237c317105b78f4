// SPDX-License-Identifier: BSD-3-Clause
// Bytes per second of the reduction kernels, counted as the bytes of one operand: comparable with
// memcpy.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/reduce.h"

namespace c10d { namespace {

struct Case {
  const char* name;
  DType dtype;
  ReduceOp op;
};

void reduce_rows(benchmark::State& state, KernelIsa isa, const Case& c) {
  const auto rows = static_cast<std::size_t>(state.range(0));
  const auto bytes = static_cast<std::size_t>(state.range(1));
  // Bits that are ordinary numbers in every dtype.
  std::vector<std::vector<std::byte>> memory(rows + 1, std::vector(bytes, std::byte{0x3f}));
  std::vector<const std::byte*> in;
  for (std::size_t r = 0; r < rows; ++r) in.push_back(memory[r].data());
  for (auto _ : state) {
    reduce(isa, c.dtype, c.op, memory[rows].data(), in, bytes / size_of(c.dtype));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(1));
}

void copy_row(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector from(bytes, std::byte{0x3f}), to(bytes, std::byte{0});
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(copy_row)->Name("memcpy")->Arg(64 << 10)->Arg(1 << 20);

const bool registered = [] {
  const Case cases[] = {
      {"f32_sum", DType::f32, ReduceOp::sum},   {"f32_max", DType::f32, ReduceOp::max},
      {"f64_sum", DType::f64, ReduceOp::sum},   {"f16_sum", DType::f16, ReduceOp::sum},
      {"bf16_sum", DType::bf16, ReduceOp::sum}, {"bf16_avg", DType::bf16, ReduceOp::avg},
      {"i32_sum", DType::i32, ReduceOp::sum},   {"i8_prod", DType::i8, ReduceOp::prod},
      {"u8_max", DType::u8, ReduceOp::max},     {"bool_or", DType::boolean, ReduceOp::sum}};
  constexpr const char* isa_names[] = {"baseline", "avx2", "avx512"};
  for (const KernelIsa isa : runnable_isas())
    for (const Case& c : cases) {
      const std::string name = std::string(isa_names[static_cast<int>(isa)]) + "/" + c.name;
      benchmark::RegisterBenchmark(name.c_str(), reduce_rows, isa, c)
          ->ArgNames({"n", "bytes"})
          ->ArgsProduct({{2, 4, 8, 16}, {4 << 10, 64 << 10}});
    }
  return true;
}();

}}  // namespace c10d
