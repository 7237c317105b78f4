// SPDX-License-Identifier: BSD-3-Clause
// Kernels that compute, against the reduction of the CPU.
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>

#include "c10d/small_float.h"
#include "kernels/reduce.h"
#include "tests/fake_gpu/kernel_tests/runner.h"

namespace kernel_tests { namespace {

using c10d::DType;
using c10d::ReduceOp;

constexpr DType kFloats[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
constexpr DType kIntegers[] = {DType::i64, DType::i32, DType::i16, DType::i8,
                               DType::u64, DType::u32, DType::u16, DType::u8};

Bytes values_of(DType dtype) {
  if (dtype == DType::f64) return bytes_of(many_long_words());
  if (dtype == DType::f32) return bytes_of(many_words());
  return bytes_of(every_half());
}

// The same values, that many elements further to the left.
Bytes rotated(Bytes values, DType dtype, std::size_t elements) {
  const auto bytes = static_cast<std::ptrdiff_t>(elements * size_of(dtype) % values.size());
  std::rotate(values.begin(), values.begin() + bytes, values.end());
  return values;
}

Bytes reduced(DType dtype, ReduceOp op, const std::vector<Bytes>& in) {
  Bytes out(in[0].size());
  std::vector<const std::byte*> inputs;
  for (const Bytes& input : in) inputs.push_back(input.data());
  c10d::reduce(dtype, op, out.data(), inputs, out.size() / size_of(dtype));
  return out;
}

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Nothing is added by it, also not to -0.
Bytes negative_zeros(DType dtype, std::size_t bytes) {
  Bytes zeros(bytes);
  for (std::size_t at = size_of(dtype) - 1; at < bytes; at += size_of(dtype))
    zeros[at] = std::byte{0x80};
  return zeros;
}

TEST(Divide, AsAverageDoes) {
  with_kernels([](Gpu& gpu) {
    for (const DType dtype : kFloats) {
      const Bytes in = values_of(dtype);
      for (const std::size_t n : {1, 3, 8}) {
        std::vector<Bytes> inputs(n, negative_zeros(dtype, in.size()));
        inputs[0] = in;
        kernels::Arguments arguments;
        arguments.divisor = static_cast<double>(n);
        expect_bits(gpu, {kernels::divide_kernel(dtype, dtype),
                          arguments,
                          size_of(dtype),
                          size_of(dtype),
                          {in},
                          {},
                          reduced(dtype, ReduceOp::avg, inputs)});
      }
    }
  });
}

template <class Half>
Bytes thirds(const std::vector<std::uint32_t>& words) {
  std::vector<Half> halves;
  for (const std::uint32_t word : words) {
    const float third = std::bit_cast<float>(word) / 3.0f;
    halves.push_back(Half(std::isnan(third) ? std::bit_cast<float>(0x7fc00000) : third));
  }
  return bytes_of(halves);
}

TEST(Divide, RoundsOnceFromF32) {
  with_kernels([](Gpu& gpu) {
    const auto words = many_words();
    kernels::Arguments arguments;
    arguments.divisor = 3;
    expect_bits(gpu, {kernels::divide_kernel(DType::f32, DType::f16),
                      arguments,
                      4,
                      2,
                      {bytes_of(words)},
                      {},
                      thirds<c10d::Float16>(words)});
    expect_bits(gpu, {kernels::divide_kernel(DType::f32, DType::bf16),
                      arguments,
                      4,
                      2,
                      {bytes_of(words)},
                      {},
                      thirds<c10d::BFloat16>(words)});
  });
}

void expect_combined(Gpu& gpu, ReduceOp::Kind kind, DType dtype) {
  const Bytes a = values_of(dtype), b = rotated(a, dtype, 12345);
  expect_bits(gpu, {kernels::combine_kernel(kind, dtype),
                    {},
                    size_of(dtype),
                    size_of(dtype),
                    {a},
                    b,
                    reduced(dtype, kind, {a, b})});
}

TEST(Combine, AddsAsTheReductionOfTwo) {
  with_kernels([](Gpu& gpu) {
    for (const DType dtype : kFloats) expect_combined(gpu, ReduceOp::sum, dtype);
    for (const DType dtype : kIntegers) expect_combined(gpu, ReduceOp::sum, dtype);
    expect_combined(gpu, ReduceOp::sum, DType::boolean);
  });
}

TEST(Combine, MultipliesIntegers) {
  with_kernels([](Gpu& gpu) {
    for (const DType dtype : kIntegers) expect_combined(gpu, ReduceOp::prod, dtype);
  });
}

TEST(Combine, TakesTheLesserAndTheGreater) {
  with_kernels([](Gpu& gpu) {
    for (const auto kind : {ReduceOp::min, ReduceOp::max}) {
      for (const DType dtype : kFloats) expect_combined(gpu, kind, dtype);
      for (const DType dtype : kIntegers) expect_combined(gpu, kind, dtype);
    }
  });
}

TEST(Combine, Booleans) {
  with_kernels([](Gpu& gpu) {
    for (const auto kind : {ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::band,
                            ReduceOp::bor, ReduceOp::bxor})
      expect_combined(gpu, kind, DType::boolean);
  });
}

TEST(Combine, Bits) {
  with_kernels([](Gpu& gpu) {
    for (const auto kind : {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor})
      for (const DType dtype : kIntegers) expect_combined(gpu, kind, dtype);
  });
}

// Finite, of either sign and many magnitudes, so that a sum depends on its order.
Bytes numbers_of(DType dtype, std::size_t count) {
  std::mt19937 random(2);
  std::vector<double> wide;
  std::vector<float> floats;
  std::vector<c10d::Float16> halves;
  std::vector<c10d::BFloat16> brains;
  for (std::size_t i = 0; i < count; ++i) {
    const double mantissa = 1 + random() * 0x1p-32 + random() * 0x1p-64;
    wide.push_back(std::ldexp(i % 2 == 0 ? mantissa : -mantissa, static_cast<int>(i % 9) - 5));
    floats.push_back(static_cast<float>(wide[i]));
    halves.emplace_back(floats[i]);
    brains.emplace_back(floats[i]);
  }
  if (dtype == DType::f64) return bytes_of(wide);
  if (dtype == DType::f32) return bytes_of(floats);
  return dtype == DType::f16 ? bytes_of(halves) : bytes_of(brains);
}

// With `apart` elements more between two inputs.
void expect_folded(Gpu& gpu, ReduceOp op, DType dtype, const Bytes& values, std::size_t n,
                   std::size_t apart) {
  std::vector<Bytes> in;
  for (std::size_t i = 0; i < n; ++i) in.push_back(rotated(values, dtype, 7 * i));
  kernels::Arguments arguments;
  arguments.inputs = n;
  arguments.stride = apart * size_of(dtype);
  arguments.factor = op.factor;
  if (op.kind == ReduceOp::avg) arguments.divisor = static_cast<double>(n);
  const auto kind = op.kind == ReduceOp::prod ? ReduceOp::prod : ReduceOp::sum;
  expect_bits(gpu, {kernels::fold_kernel(kind, dtype, n),
                    arguments,
                    size_of(dtype),
                    size_of(dtype),
                    in,
                    {},
                    reduced(dtype, op, in)});
}

TEST(Fold, AlongTheTreeOfTheReduction) {
  with_kernels([](Gpu& gpu) {
    for (const DType dtype : kFloats) {
      const Bytes values = numbers_of(dtype, 8600);
      for (std::size_t n = 1; n <= 21; ++n)
        expect_folded(gpu, ReduceOp::sum, dtype, values, n, n % 3);
      for (const std::size_t n : {31, 64, 100, 129})
        expect_folded(gpu, ReduceOp::sum, dtype, numbers_of(dtype, 1000), n, 0);
      expect_folded(gpu, ReduceOp::sum, dtype, numbers_of(dtype, 600), kernels::kMostInputs, 0);
    }
  });
}

TEST(Fold, EveryOperation) {
  with_kernels([](Gpu& gpu) {
    for (const DType dtype : kFloats)
      for (const ReduceOp op : {ReduceOp(ReduceOp::prod), ReduceOp(ReduceOp::avg),
                                ReduceOp::premul(0.3), ReduceOp(ReduceOp::sum)})
        for (const std::size_t n : {1, 2, 3, 7, 12})
          expect_folded(gpu, op, dtype, numbers_of(dtype, 1000), n, 1);
  });
}

TEST(Fold, WhatIsNoFiniteNumber) {
  with_kernels([](Gpu& gpu) {
    for (const DType dtype : kFloats)
      for (const auto kind : {ReduceOp::sum, ReduceOp::prod})
        for (const std::size_t n : {1, 2, 5})
          expect_folded(gpu, kind, dtype, values_of(dtype), n, 0);
  });
}

TEST(Combine, InPlace) {
  with_kernels([](Gpu& gpu) {
    const Bytes a = values_of(DType::f32), b = rotated(a, DType::f32, 5);
    const cu::Pointer left = upload(gpu, a.data(), a.size());
    const cu::Pointer right = upload(gpu, b.data(), b.size());
    const auto tensor = [&](cu::Pointer out) {
      return kernels::Tensor{reinterpret_cast<void*>(out), reinterpret_cast<void*>(left),
                             reinterpret_cast<void*>(right), a.size() / 4};
    };
    cu::Module module = nullptr;
    const cu::Function add = load(gpu, kernels::combine_kernel(ReduceOp::sum, DType::f32), module);
    launch(gpu, add, kernels::arguments_of(tensor(left)));
    const Bytes once = reduced(DType::f32, ReduceOp::sum, {a, b});
    EXPECT_EQ(gpu.read(left, a.size(), nullptr), text_of(once));
    launch(gpu, add, kernels::arguments_of(tensor(right)));
    EXPECT_EQ(gpu.read(right, a.size(), nullptr),
              text_of(reduced(DType::f32, ReduceOp::sum, {once, b})));
    gpu.give_back(left);
    gpu.give_back(right);
    EXPECT_EQ(gpu.api.module_unload(module), 0);
  });
}

}}  // namespace kernel_tests
