// SPDX-License-Identifier: BSD-3-Clause
// What NCCL's arithmetic does with values on which it matters.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/fake_gpu/same_as_real/ranks.h"

namespace same_as_real { namespace {

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
std::uint16_t to_bf16(float value) {  // exact values only
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}
std::string bits_of(const std::vector<std::uint32_t>& values) {
  std::string all;
  for (const auto value : values) {
    char word[12];
    std::snprintf(word, sizeof word, "%08x ", value);
    all += word;
  }
  return all;
}

void integers(Rank& me) {
  auto& a = me.api;
  // Integers that wrap, and averages of odd sums.
  std::vector<std::int32_t> ints = {2147483647, me.rank, me.rank + 1, -me.rank, -3 - me.rank};
  for (const auto& [key, kind] : std::map<const char*, nccl::RedOp>{
           {"sum.i32", nccl::kSum}, {"avg.i32", nccl::kAvg}, {"prod.i32", nccl::kProd}}) {
    const cu::Pointer p = me.put(ints);
    a.all_reduce(in(p), out(p), ints.size(), nccl::kInt32, kind, me.comm, me.stream);
    me.finish();
    me.r.fact(key, bits_of(me.get<std::uint32_t>(p, ints.size())));
  }
  std::vector<std::uint8_t> bytes = {255, std::uint8_t(me.rank + 1), 200, 0};
  for (const auto& [key, kind] :
       std::map<const char*, nccl::RedOp>{{"sum.u8", nccl::kSum}, {"avg.u8", nccl::kAvg}}) {
    const cu::Pointer p = me.put(bytes);
    a.all_reduce(in(p), out(p), bytes.size(), nccl::kUint8, kind, me.comm, me.stream);
    me.finish();
    const auto got = me.get<std::uint8_t>(p, 4);
    me.r.fact(key, text_of({got.begin(), got.end()}));
  }
}

void halves(Rank& me) {
  auto& a = me.api;
  // bf16: 256 + 1 + 1 + ..: whether a partial sum is rounded at each step.
  const std::vector<float> wide = me.rank == 0 ? std::vector<float>{256, 1, 1, 0.0078125f, 3}
                                               : std::vector<float>{1, 256, 1, 1, -3.015625f};
  for (const auto& [key, kind] : std::map<const char*, nccl::RedOp>{
           {"sum.bf16", nccl::kSum}, {"avg.bf16", nccl::kAvg}, {"max.bf16", nccl::kMax}}) {
    std::vector<std::uint16_t> values;
    for (const float value : wide) values.push_back(to_bf16(value));
    const cu::Pointer p = me.put(values);
    a.all_reduce(in(p), out(p), values.size(), nccl::kBfloat16, kind, me.comm, me.stream);
    me.finish();
    std::vector<double> got;
    for (const auto bits : me.get<std::uint16_t>(p, values.size())) got.push_back(from_bf16(bits));
    me.r.fact(key, text_of(got));
  }
  // f16: 2048 + 1.
  {
    const std::vector<std::uint16_t> values =
        me.rank == 0 ? std::vector<std::uint16_t>{0x6800, 0x3c00, 0x7bff, 0x7e00}
                     : std::vector<std::uint16_t>{0x3c00, 0x6800, 0x7bff, 0x3c00};
    for (const auto& [key, kind] : std::map<const char*, nccl::RedOp>{
             {"sum.f16", nccl::kSum}, {"avg.f16", nccl::kAvg}, {"max.f16", nccl::kMax}}) {
      const cu::Pointer p = me.put(values);
      a.all_reduce(in(p), out(p), values.size(), nccl::kFloat16, kind, me.comm, me.stream);
      me.finish();
      std::vector<std::uint32_t> got;
      for (const auto bits : me.get<std::uint16_t>(p, values.size())) got.push_back(bits);
      me.r.fact(key, bits_of(got));
    }
  }
}

void eights(Rank& me) {
  auto& a = me.api;
  // fp8 e4m3: 0x38 is 1, 0x40 is 2, 0x7e is 448 (the largest), 0x7f is NaN, 0x58 is 16; e5m2: 0x3c
  // is 1.
  for (const auto& [name, type] : std::map<const char*, nccl::DataType>{
           {"e4m3", nccl::kFloat8e4m3}, {"e5m2", nccl::kFloat8e5m2}}) {
    const std::vector<std::uint8_t> values =
        me.rank == 0 ? std::vector<std::uint8_t>{0x38, 0x40, 0x7e, 0x7f, 0x58, 0x3c, 0x7b, 0x01}
                     : std::vector<std::uint8_t>{0x38, 0x38, 0x7e, 0x38, 0x38, 0x3c, 0x7b, 0x01};
    for (const auto& [kind_name, kind] :
         std::map<const char*, nccl::RedOp>{{"sum", nccl::kSum},
                                            {"avg", nccl::kAvg},
                                            {"max", nccl::kMax},
                                            {"min", nccl::kMin},
                                            {"prod", nccl::kProd}}) {
      const cu::Pointer p = me.put(values);
      const int code = a.all_reduce(in(p), out(p), values.size(), type, kind, me.comm, me.stream);
      me.finish();
      std::string key = std::string(kind_name) + "." + name, got = std::to_string(code);
      for (const auto byte : me.get<std::uint8_t>(p, values.size())) {
        char word[8];
        std::snprintf(word, sizeof word, " %02x", byte);
        got += word;
      }
      me.r.fact(key, got);
    }
  }
}

// What arithmetic does: the values of the ranks stand in rows.
void numbers(Rank& me) {
  me.r.fact("init", me.make());
  auto& a = me.api;
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  const bool even = me.rank % 2 == 0;
  const auto reduce32 = [&](const char* key, const std::vector<float>& values, nccl::RedOp op) {
    const cu::Pointer p = me.put(values);
    const int code =
        a.all_reduce(in(p), out(p), values.size(), nccl::kFloat32, op, me.comm, me.stream);
    const std::string stream = me.finish();
    me.r.fact(key, std::to_string(code) + " " + stream + " " +
                       bits_of(me.get<std::uint32_t>(p, values.size())));
  };
  reduce32("max.nan_zero",
           even ? std::vector<float>{nan, 1, -0.0f, 0.0f, nan, -inf}
                : std::vector<float>{1, nan, 0.0f, -0.0f, nan, inf},
           nccl::kMax);
  reduce32("min.nan_zero",
           even ? std::vector<float>{nan, 1, -0.0f, 0.0f, nan, -inf}
                : std::vector<float>{1, nan, 0.0f, -0.0f, nan, inf},
           nccl::kMin);
  reduce32("sum.nan_zero",
           even ? std::vector<float>{nan, 1, -0.0f, 0.0f, inf, -0.0f}
                : std::vector<float>{1, nan, 0.0f, -0.0f, -inf, -0.0f},
           nccl::kSum);
  // 0.1, 0.2 .. : average by division and by a product differ in some bits.
  std::vector<float> tenths;
  for (int i = 1; i <= 8; ++i) tenths.push_back(float(i) * 0.1f + float(me.rank) * 0.7f);
  reduce32("avg.f32", tenths, nccl::kAvg);
  reduce32("sum.f32", tenths, nccl::kSum);
  reduce32("avg.f32_denormal",
           std::vector<float>(4, std::numeric_limits<float>::denorm_min() * float(me.rank + 1)),
           nccl::kAvg);
  reduce32("sum.f32_denormal",
           std::vector<float>(4, std::numeric_limits<float>::denorm_min() * float(me.rank + 1)),
           nccl::kSum);
  reduce32("sum.f32_overflow", {3e38f, -3e38f}, nccl::kSum);
  reduce32("avg.f32_overflow", {3e38f, -3e38f}, nccl::kAvg);
  nccl::RedOp op{};
  float factor = even ? 0.1f : 0.3f;
  a.red_op_create(&op, &factor, nccl::kFloat32, nccl::kScalarHostImmediate, me.comm);
  me.r.fact("premul.create.state", me.settle());
  reduce32("premul.f32", tenths, op);
  integers(me);
  halves(me);
  eights(me);
  me.r.fact("destroy", me.api.comm_destroy(me.comm));
}
RANKS(numbers2, "nccl2.numbers", 2, 60) { numbers(me); }
RANKS(numbers4, "nccl4.numbers", 4, 90) { numbers(me); }

}}  // namespace same_as_real
