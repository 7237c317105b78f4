// SPDX-License-Identifier: BSD-3-Clause
// The loops of reduce(), compiled once per instruction set. The including file sets
// C10D_KERNEL_WIDTH, the bytes of a vector, and C10D_KERNEL_ENTRY, the one function it defines. All
// else is in an unnamed namespace, and no inline function of the standard library is called: the
// linker could keep the copy that was compiled here, with instructions that the CPU lacks, for the
// whole program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/reduce_entry.h"
#include "kernels/reduce_formats.h"

namespace c10d::inline v0 {
namespace {

// An op has three steps: leaf() on each input, combine() along the tree, finish() on its result.
struct Plainly {
  template <class V>
  static V leaf(V v) {
    return v;
  }
  template <class V>
  static V finish(V v) {
    return v;
  }
};
struct Sum : Plainly {
  template <class V>
  static V combine(V a, V b) {
    return a + b;
  }
};
struct Prod : Plainly {
  template <class V>
  static V combine(V a, V b) {
    return a * b;
  }
};
struct And : Plainly {
  template <class V>
  static V combine(V a, V b) {
    return a & b;
  }
};
struct Or : Plainly {
  template <class V>
  static V combine(V a, V b) {
    return a | b;
  }
};
struct Xor : Plainly {
  template <class V>
  static V combine(V a, V b) {
    return a ^ b;
  }
};
struct Min : Plainly {
  template <class V>
  static V combine(V a, V b) {
    if constexpr (std::is_floating_point_v<ElementOf<V>>) {
      // Equal means the same bits, or zeros of either sign, of which -0 has the more bits. NaN is
      // all ones here.
      using Mask = decltype(a == b);
      return bits<V>(bits<Mask>(a < b ? a : b) | (bits<Mask>(a) & (a == b)) | (a != a) | (b != b));
    } else {
      return a < b ? a : b;
    }
  }
};
struct Max : Plainly {
  template <class V>
  static V combine(V a, V b) {
    if constexpr (std::is_floating_point_v<ElementOf<V>>) {
      using Mask = decltype(a == b);
      return bits<V>((bits<Mask>(a > b ? a : b) & (bits<Mask>(a) | ~(a == b))) | (a != a) |
                     (b != b));
    } else {
      return a > b ? a : b;
    }
  }
};
template <class V>
struct Avg : Sum {
  V divisor;
  V finish(V v) const { return v / divisor; }
};
template <class V>
struct PremulSum : Sum {
  V factor;
  V leaf(V v) const { return v * factor; }
};

constexpr std::size_t left_of(std::size_t n) {
  std::size_t left = 1;
  while (left * 2 < n) left *= 2;
  return left;
}

template <class Format, class Op, std::size_t n>
typename Format::Accumulator tree(const Op& op, const std::byte* const* in, std::size_t offset) {
  if constexpr (n == 1) {
    return op.leaf(Format::load(in[0] + offset));
  } else {
    constexpr std::size_t left = left_of(n);
    return op.combine(tree<Format, Op, left>(op, in, offset),
                      tree<Format, Op, n - left>(op, in + left, offset));
  }
}

// Calls put(result, first element, elements) for one vector after the other; the last may hold
// fewer elements.
template <class Format, class Op, std::size_t n, class Put>
inline __attribute__((always_inline)) void for_each_vector(const Op& op, const std::byte* const* in,
                                                           std::size_t first, std::size_t count,
                                                           const Put& put) {
  constexpr std::size_t stride = Format::kStride;
  constexpr std::size_t lanes = Format::kLanes;
  const std::byte* from[n];  // a copy that no store can alias
  for (std::size_t i = 0; i < n; ++i) from[i] = in[i] + first * stride;
  std::size_t done = 0;
  for (; done + lanes <= count; done += lanes)
    put(tree<Format, Op, n>(op, from, done * stride), done, lanes);
  if (done == count) return;
  std::byte rest[n][lanes * stride] = {};
  const std::byte* padded[n];
  for (std::size_t i = 0; i < n; ++i) {
    __builtin_memcpy(rest[i], from[i] + done * stride, (count - done) * stride);
    padded[i] = rest[i];
  }
  put(tree<Format, Op, n>(op, padded, 0), done, count - done);
}

template <class Format>
void store(std::byte* out, typename Format::Accumulator v, std::size_t elements) {
  if (elements == Format::kLanes) {
    Format::store(out, v);
  } else {
    std::byte rest[Format::kLanes * Format::kStride];
    Format::store(rest, v);
    __builtin_memcpy(out, rest, elements * Format::kStride);
  }
}

template <class Format, class Op, std::size_t n>
void reduce_unrolled(const Op& op, std::byte* out, const std::byte* const* in, std::size_t count) {
  for_each_vector<Format, Op, n>(
      op, in, 0, count, [&](auto v, std::size_t at, std::size_t elements) {
        store<Format>(out + at * Format::kStride, op.finish(v), elements);
      });
}

// The tree of more inputs than registers hold: subtrees of up to eight go through accumulators in
// L1.
template <class Format, class Op>
struct Tile {
  using V = typename Format::Accumulator;
  static constexpr std::size_t kElements = kTileVectors * Format::kLanes;

  template <std::size_t n>
  static void leaves(const Op& op, V* to, const std::byte* const* in, std::size_t first,
                     std::size_t count) {
    for_each_vector<Format, Op, n>(op, in, first, count, [&](V v, std::size_t at, std::size_t) {
      to[at / Format::kLanes] = v;
    });
  }

  static void fill(const Op& op, V* to, const std::byte* const* in, std::size_t n,
                   std::size_t first, std::size_t count) {
    if (n == 8) return leaves<8>(op, to, in, first, count);
    if (n == 4) return leaves<4>(op, to, in, first, count);
    if (n == 2) return leaves<2>(op, to, in, first, count);
    if (n == 1) return leaves<1>(op, to, in, first, count);
    const std::size_t left = left_of(n);
    fill(op, to, in, left, first, count);
    V right[kTileVectors];
    fill(op, right, in + left, n - left, first, count);
    for (std::size_t i = 0; i * Format::kLanes < count; ++i) to[i] = op.combine(to[i], right[i]);
  }

  static void reduce(const Op& op, std::byte* out, const std::byte* const* in, std::size_t n,
                     std::size_t count) {
    V sums[kTileVectors];
    for (std::size_t first = 0; first < count; first += kElements) {
      const std::size_t elements = count - first < kElements ? count - first : kElements;
      fill(op, sums, in, n, first, elements);
      for (std::size_t at = 0; at < elements; at += Format::kLanes) {
        const std::size_t some = elements - at < Format::kLanes ? elements - at : Format::kLanes;
        store<Format>(out + (first + at) * Format::kStride, op.finish(sums[at / Format::kLanes]),
                      some);
      }
    }
  }
};

struct Buffers {
  std::byte* out;
  const std::byte* const* in;
  std::size_t n;
  std::size_t count;
};

template <class Format, class Op>
bool run(const Op& op, const Buffers& b) {
  // clang-format off
  switch (b.n) {
    case 1: reduce_unrolled<Format, Op, 1>(op, b.out, b.in, b.count); break;
    case 2: reduce_unrolled<Format, Op, 2>(op, b.out, b.in, b.count); break;
    case 3: reduce_unrolled<Format, Op, 3>(op, b.out, b.in, b.count); break;
    case 4: reduce_unrolled<Format, Op, 4>(op, b.out, b.in, b.count); break;
    case 5: reduce_unrolled<Format, Op, 5>(op, b.out, b.in, b.count); break;
    case 6: reduce_unrolled<Format, Op, 6>(op, b.out, b.in, b.count); break;
    case 7: reduce_unrolled<Format, Op, 7>(op, b.out, b.in, b.count); break;
    case 8: reduce_unrolled<Format, Op, 8>(op, b.out, b.in, b.count); break;
    default: Tile<Format, Op>::reduce(op, b.out, b.in, b.n, b.count);
  }
  // clang-format on
  return true;
}

template <class Format>
bool run_float(ReduceOp::Kind kind, double factor, const Buffers& b) {
  using V = typename Format::Accumulator;
  using T = ElementOf<V>;
  switch (kind) {
    case ReduceOp::sum:
      return run<Format>(Sum{}, b);
    case ReduceOp::avg:
      return run<Format>(Avg<V>{{}, V{} + static_cast<T>(b.n)}, b);
    case ReduceOp::prod:
      return run<Format>(Prod{}, b);
    case ReduceOp::min:
      return run<Format>(Min{}, b);
    case ReduceOp::max:
      return run<Format>(Max{}, b);
    case ReduceOp::premul_sum:
      return run<Format>(PremulSum<V>{{}, V{} + static_cast<T>(factor)}, b);
    default:
      return false;
  }
}

// Only order tells signed from unsigned; all other ops work on the bits, the bitwise ones on bytes.
template <class T>
bool run_integer(ReduceOp::Kind kind, const Buffers& b) {
  using Unsigned = Plain<std::make_unsigned_t<T>>;
  const Buffers bytes{b.out, b.in, b.n, b.count * sizeof(T)};
  switch (kind) {
    case ReduceOp::sum:
      return run<Unsigned>(Sum{}, b);
    case ReduceOp::prod:
      return run<Unsigned>(Prod{}, b);
    case ReduceOp::min:
      return run<Plain<T>>(Min{}, b);
    case ReduceOp::max:
      return run<Plain<T>>(Max{}, b);
    case ReduceOp::band:
      return run<Plain<std::uint8_t>>(And{}, bytes);
    case ReduceOp::bor:
      return run<Plain<std::uint8_t>>(Or{}, bytes);
    case ReduceOp::bxor:
      return run<Plain<std::uint8_t>>(Xor{}, bytes);
    default:
      return false;
  }
}

bool run_bool(ReduceOp::Kind kind, const Buffers& b) {
  switch (kind) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bor:
      return run<Bool>(Or{}, b);
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::band:
      return run<Bool>(And{}, b);
    case ReduceOp::bxor:
      return run<Bool>(Xor{}, b);
    default:
      return false;
  }
}

}  // namespace

bool C10D_KERNEL_ENTRY(DType dtype, ReduceOp::Kind kind, double factor, std::byte* out,
                       const std::byte* const* in, std::size_t n, std::size_t count) {
  const Buffers b{out, in, n, count};
  // clang-format off
  switch (dtype) {
    case DType::f64: return run_float<Plain<double>>(kind, factor, b);
    case DType::f32: return run_float<Plain<float>>(kind, factor, b);
    case DType::f16: return run_float<F16>(kind, factor, b);
    case DType::bf16: return run_float<BF16>(kind, factor, b);
    case DType::i64: return run_integer<std::int64_t>(kind, b);
    case DType::i32: return run_integer<std::int32_t>(kind, b);
    case DType::i16: return run_integer<std::int16_t>(kind, b);
    case DType::i8: return run_integer<std::int8_t>(kind, b);
    case DType::u64: return run_integer<std::uint64_t>(kind, b);
    case DType::u32: return run_integer<std::uint32_t>(kind, b);
    case DType::u16: return run_integer<std::uint16_t>(kind, b);
    case DType::u8: return run_integer<std::uint8_t>(kind, b);
    case DType::boolean: return run_bool(kind, b);
  }
  // clang-format on
  return false;
}

}  // namespace c10d::inline v0
