// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/oracle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <type_traits>

namespace c10d::bench {
namespace {

constexpr std::size_t kChunk = 2048;
using Chunk = std::array<std::int32_t, kChunk>;

std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 15;
  x *= 0x85ebca6bU;
  x ^= x >> 13;
  return x;
}

// Floating point of 16 or 8 bits.
template <class T>
concept Small = requires(T number) {
  number.bits();
};

template <class T>
T from_integer(std::int32_t value) {
  if constexpr (Small<T>) {
    return T(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
bool equal(T a, T b, bool rounded) {
  if constexpr (Small<T>) {
    return a.bits() == b.bits();
  } else if constexpr (std::is_floating_point_v<T> || detail::Complex<T>) {
    // A mean may be a sum times 1/n: not exact, but closer than any wrong whole number.
    return a == b || (rounded && std::abs(a - b) <= 1e-6 * std::abs(b));
  } else {
    return a == b;
  }
}

template <class T>
std::uint64_t count_wrong(const void* output, const std::int32_t* expected, std::size_t count,
                          bool rounded) {
  const T* got = static_cast<const T*>(output);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i)
    wrong += equal(got[i], from_integer<T>(expected[i]), rounded) ? 0 : 1;
  return wrong;
}

// A bool that holds neither 0 nor 1 must not be read as a bool.
template <>
std::uint64_t count_wrong<bool>(const void* output, const std::int32_t* expected, std::size_t count,
                                bool) {
  const auto* got = static_cast<const std::uint8_t*>(output);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += got[i] == (expected[i] != 0 ? 1 : 0) ? 0 : 1;
  return wrong;
}

template <class F>
decltype(auto) with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(double{});
    case DType::f32:
      return f(float{});
    case DType::f16:
      return f(Float16{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f8e4m3:
      return f(Float8E4M3{});
    case DType::f8e5m2:
      return f(Float8E5M2{});
    case DType::i64:
      return f(std::int64_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::i16:
      return f(std::int16_t{});
    case DType::i8:
      return f(std::int8_t{});
    case DType::u64:
      return f(std::uint64_t{});
    case DType::u32:
      return f(std::uint32_t{});
    case DType::u16:
      return f(std::uint16_t{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::c64:
      return f(std::complex<float>{});
    case DType::c128:
      return f(std::complex<double>{});
    case DType::boolean:
      break;
  }
  return f(bool{});
}

std::uint64_t compare(ConstView output, std::size_t first, std::size_t count,
                      const std::int32_t* expected, bool rounded) {
  return with_type(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    return count_wrong<T>(output.slice(first, count).data, expected, count, rounded);
  });
}

bool is_unsigned(DType dtype) {
  return dtype == DType::u64 || dtype == DType::u32 || dtype == DType::u16 || dtype == DType::u8;
}

void accumulate(ReduceOp::Kind op, const Chunk& value, std::size_t count, Chunk& sum) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t v = value[i];
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
      case ReduceOp::premul_sum:
        sum[i] += v;
        break;
      case ReduceOp::prod:
        sum[i] *= v;
        break;
      case ReduceOp::min:
        sum[i] = std::min(sum[i], v);
        break;
      case ReduceOp::max:
        sum[i] = std::max(sum[i], v);
        break;
      case ReduceOp::band:
        sum[i] &= v;
        break;
      case ReduceOp::bor:
        sum[i] |= v;
        break;
      case ReduceOp::bxor:
        sum[i] ^= v;
        break;
    }
  }
}

}  // namespace

Oracle::Oracle(const Case& c, int ranks, std::uint64_t seed)
    : case_(c), ranks_(ranks), seed_(static_cast<std::uint32_t>(seed ^ seed >> 32)) {}

void Oracle::values(int rank, std::uint64_t first, std::size_t count, std::int32_t* out) const {
  const std::uint32_t salt = mix(seed_ + 0x9e3779b9U * static_cast<std::uint32_t>(rank + 1));
  const auto start = static_cast<std::uint32_t>(first);
  const auto raw = [&](std::size_t i) {
    return mix((start + static_cast<std::uint32_t>(i)) * 2654435761U ^ salt);
  };
  const bool reduces = is_reduction(facts_of(case_.op).kind);
  const ReduceOp::Kind op = reduces ? case_.redop : ReduceOp::bor;
  if (case_.dtype == DType::boolean) {
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(raw(i) & 1U);
  } else if (op == ReduceOp::prod) {
    // One rank per element contributes a 3, the others a sign: no product leaves any dtype.
    for (std::size_t i = 0; i < count; ++i) {
      const bool three =
          (first + i) % static_cast<std::uint64_t>(ranks_) == static_cast<std::uint64_t>(rank);
      const bool minus = !is_unsigned(case_.dtype) && (raw(i) & 1U) != 0;
      out[i] = (three ? 3 : 1) * (minus ? -1 : 1);
    }
  } else if (op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor) {
    // Moved or combined bit by bit. Floating point holds eight bits of them exactly, and numbers of
    // 8 bits hold what they are rounded to.
    const std::uint32_t mask = is_floating(case_.dtype) ? 0x7FU : 0xFFFFFFFFU;
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(raw(i) & mask);
  } else {
    const std::int32_t low = is_unsigned(case_.dtype) ? 0 : -2;
    const std::int32_t scale = op == ReduceOp::avg ? ranks_ : op == ReduceOp::premul_sum ? 2 : 1;
    // Numbers of 8 bits hold few whole ones: each element gets something from two ranks only.
    const auto ranks = static_cast<std::uint64_t>(ranks_), mine = static_cast<std::uint64_t>(rank);
    const auto is_zero = [&](std::size_t i) {
      return is_float8(case_.dtype) && (first + i + mine) % ranks > 1;
    };
    for (std::size_t i = 0; i < count; ++i)
      out[i] = is_zero(i) ? 0 : (static_cast<std::int32_t>((raw(i) >> 8) * 5U >> 24) + low) * scale;
  }
}

void Oracle::fill(View buffer, int rank, std::uint64_t first) const {
  Chunk chunk;
  for (std::size_t done = 0; done < buffer.count; done += kChunk) {
    const std::size_t count = std::min(kChunk, buffer.count - done);
    values(rank, first + done, count, chunk.data());
    with_type(buffer.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* out = static_cast<T*>(buffer.data) + done;
      for (std::size_t i = 0; i < count; ++i) out[i] = from_integer<T>(chunk[i]);
    });
  }
}

std::uint64_t Oracle::wrong_reduced(ConstView output, std::uint64_t first, int ranks) const {
  Chunk sum;
  Chunk value;
  std::uint64_t wrong = 0;
  for (std::size_t done = 0; done < output.count; done += kChunk) {
    const std::size_t count = std::min(kChunk, output.count - done);
    values(0, first + done, count, sum.data());
    for (int rank = 1; rank < ranks; ++rank) {
      values(rank, first + done, count, value.data());
      accumulate(case_.redop, value, count, sum);
    }
    const std::int32_t divisor = case_.redop == ReduceOp::avg          ? ranks
                                 : case_.redop == ReduceOp::premul_sum ? 2
                                                                       : 1;
    if (divisor != 1)
      for (std::size_t i = 0; i < count; ++i) sum[i] /= divisor;
    wrong += compare(output, done, count, sum.data(), case_.redop == ReduceOp::avg);
  }
  return wrong;
}

std::uint64_t Oracle::wrong_moved(ConstView output, Source source) const {
  Chunk chunk;
  std::uint64_t wrong = 0;
  for (std::size_t done = 0; done < output.count; done += kChunk) {
    const std::size_t count = std::min(kChunk, output.count - done);
    values(source.rank, source.first + done, count, chunk.data());
    wrong += compare(output, done, count, chunk.data(), false);
  }
  return wrong;
}

std::uint64_t Oracle::wrong_exchanged(ConstView output, int rank) const {
  const auto between = [&](int from, int to) {
    return shard_of(case_, ranks_, shard_between(from, to, ranks_));
  };
  std::uint64_t wrong = 0, at = 0;
  for (int from = 0; from < ranks_; ++from) {
    std::uint64_t first = 0;
    for (int to = 0; to < rank; ++to) first += between(from, to);
    wrong += wrong_moved(output.slice(at, between(from, rank)), {from, first});
    at += between(from, rank);
  }
  return wrong;
}

std::uint64_t Oracle::wrong(ConstView output, int rank) const {
  const std::uint64_t k = case_.shard;
  const std::uint64_t mine = shards_before(case_, ranks_, rank);
  if (output.count == 0) return 0;
  switch (case_.op) {
    case BenchOp::all_reduce:
    case BenchOp::reduce:
      return wrong_reduced(output, 0, ranks_);
    case BenchOp::scan:
      return wrong_reduced(output, 0, rank + 1);
    case BenchOp::exscan:  // rank 0 has no result
      return rank == 0 ? 0 : wrong_reduced(output, 0, rank);
    case BenchOp::reduce_scatter:
    case BenchOp::reduce_scatter_v:
      return wrong_reduced(output, mine, ranks_);
    case BenchOp::broadcast:
      return wrong_moved(output, {case_.root, 0});
    case BenchOp::scatter:
    case BenchOp::scatter_v:
      return wrong_moved(output, {case_.root, mine});
    case BenchOp::all_gather:
    case BenchOp::all_gather_v:
    case BenchOp::gather:
    case BenchOp::gather_v: {
      std::uint64_t wrong = 0;
      for (int from = 0; from < ranks_; ++from)
        wrong += wrong_moved(
            output.slice(shards_before(case_, ranks_, from), shard_of(case_, ranks_, from)),
            {from, 0});
      return wrong;
    }
    case BenchOp::all_to_all:
    case BenchOp::all_to_all_v:
      return wrong_exchanged(output, rank);
    case BenchOp::send:
    case BenchOp::isend: {  // every message of the window holds the partner's vector
      std::uint64_t wrong = 0;
      for (std::size_t at = 0; at < output.count; at += k)
        wrong += wrong_moved(output.slice(at, k), {case_.end ? case_.end->from : rank ^ 1, 0});
      return wrong;
    }
    case BenchOp::barrier:
      break;
  }
  return 0;
}

void poison(View buffer) {
  if (buffer.count > 0) std::memset(buffer.data, 0xA5, buffer.bytes());
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t hash = 0x9e3779b97f4a7c15ULL ^ bytes;
  const auto absorb = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  };
  for (; bytes >= 8; bytes -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    absorb(word);
  }
  std::uint64_t rest = 0;
  if (bytes > 0) std::memcpy(&rest, at, bytes);
  absorb(rest);
  return hash;
}

}  // namespace c10d::bench
