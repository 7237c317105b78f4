// SPDX-License-Identifier: BSD-3-Clause
// Kernels that change types: casts against c10d/small_float.h, keys against the reduction of the
// CPU.
#include <algorithm>
#include <bit>

#include "c10d/small_float.h"
#include "kernels/reduce.h"
#include "tests/fake_gpu/kernel_tests/runner.h"

namespace kernel_tests { namespace {

using c10d::BFloat16;
using c10d::DType;
using c10d::Float16;
using c10d::ReduceOp;

template <class To, class From>
Expected cast(DType from, DType to, const std::vector<From>& in) {
  std::vector<To> out;
  for (const From value : in) out.push_back(static_cast<To>(value));
  return {kernels::cast_kernel(from, to),
          {},
          sizeof(From),
          sizeof(To),
          {bytes_of(in)},
          {},
          bytes_of(out)};
}

template <class T, class Bits>
std::vector<T> as(const std::vector<Bits>& bits) {
  std::vector<T> values;
  for (const Bits word : bits) values.push_back(std::bit_cast<T>(word));
  return values;
}

TEST(Casts, RoundToNearestEvenAndWidenExactly) {
  with_kernels([](Gpu& gpu) {
    const auto floats = as<float>(many_words());
    expect_bits(gpu, cast<Float16>(DType::f32, DType::f16, floats));
    expect_bits(gpu, cast<BFloat16>(DType::f32, DType::bf16, floats));
    expect_bits(gpu, cast<float>(DType::f16, DType::f32, as<Float16>(every_half())));
    expect_bits(gpu, cast<float>(DType::bf16, DType::f32, as<BFloat16>(every_half())));
  });
}

TEST(Casts, IntegersKeepTheirSignAndWrap) {
  with_kernels([](Gpu& gpu) {
    const auto narrow = every_half();
    const auto wide = many_words();
    expect_bits(gpu, cast<std::int32_t>(DType::i16, DType::i32, as<std::int16_t>(narrow)));
    expect_bits(gpu, cast<std::uint32_t>(DType::u16, DType::u32, narrow));
    expect_bits(gpu, cast<std::int16_t>(DType::i32, DType::i16, as<std::int32_t>(wide)));
    expect_bits(gpu, cast<std::uint16_t>(DType::u32, DType::u16, wide));
  });
}

TEST(Casts, BooleansBecomeZeroOrOneAndParityCountsThem) {
  with_kernels([](Gpu& gpu) {
    std::vector<std::uint8_t> in, truth, odd;
    for (unsigned i = 0; i < 40000; ++i) {
      in.push_back(static_cast<std::uint8_t>(i * 37 % 256));
      truth.push_back(in.back() != 0);
      odd.push_back(in.back() % 2);
    }
    const Bytes bytes = bytes_of(in);
    expect_bits(
        gpu,
        {kernels::cast_kernel(DType::boolean, DType::u8), {}, 1, 1, {bytes}, {}, bytes_of(truth)});
    expect_bits(gpu, {kernels::parity_kernel(), {}, 1, 1, {bytes}, {}, bytes_of(odd)});
  });
}

// The key, written a second time: what std::strong_order says of numbers.
template <class Key, class Bits>
Key key_of(Bits bits, Bits infinity, bool least) {
  const Bits sign = static_cast<Bits>(~(static_cast<Bits>(~Bits{0}) >> 1));
  const Bits magnitude = static_cast<Bits>(bits & static_cast<Bits>(~sign));
  const Key end = static_cast<Key>(static_cast<Bits>(~sign));
  if (magnitude > infinity) return least ? static_cast<Key>(-end - 1) : end;
  return static_cast<Key>((bits & sign) != 0 ? -static_cast<Key>(magnitude) - 1
                                             : static_cast<Key>(magnitude));
}

// Through keys, and by integers: what reduce() makes of two inputs.
template <class Key, class Bits>
void expect_order(Gpu& gpu, DType dtype, Bits infinity, const std::vector<Bits>& a) {
  std::vector<Bits> b = a;
  std::rotate(b.begin(), b.begin() + 7, b.end());
  b[3] = static_cast<Bits>(a[3] ^ ~(static_cast<Bits>(~Bits{0}) >> 1));  // the other zero, perhaps
  for (const auto kind : {ReduceOp::min, ReduceOp::max}) {
    const bool least = kind == ReduceOp::min;
    std::vector<Key> keys, best;
    for (std::size_t i = 0; i < a.size(); ++i) {
      keys.push_back(key_of<Key>(a[i], infinity, least));
      const Key other = key_of<Key>(b[i], infinity, least);
      best.push_back(least ? std::min(keys[i], other) : std::max(keys[i], other));
    }
    expect_bits(gpu, {kernels::to_keys_kernel(kind, dtype),
                      {},
                      sizeof(Bits),
                      sizeof(Key),
                      {bytes_of(a)},
                      {},
                      bytes_of(keys)});
    Bytes reduced(a.size() * sizeof(Bits));
    const Bytes left = bytes_of(a), right = bytes_of(b);
    const std::byte* const inputs[] = {left.data(), right.data()};
    c10d::reduce(dtype, kind, reduced.data(), inputs, a.size());
    expect_bits(gpu, {kernels::from_keys_kernel(dtype),
                      {},
                      sizeof(Key),
                      sizeof(Bits),
                      {bytes_of(best)},
                      {},
                      reduced});
  }
}

TEST(Keys, OrderNumbersAsTheReductionDoes) {
  with_kernels([](Gpu& gpu) {
    expect_order<std::int64_t, std::uint64_t>(gpu, DType::f64, 0x7ff0000000000000,
                                              many_long_words());
    expect_order<std::int32_t, std::uint32_t>(gpu, DType::f32, 0x7f800000, many_words());
    expect_order<std::int32_t, std::uint16_t>(gpu, DType::f16, 0x7c00, every_half());
    expect_order<std::int32_t, std::uint16_t>(gpu, DType::bf16, 0x7f80, every_half());
  });
}

}}  // namespace kernel_tests
