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

namespace c10d { inline namespace v0 {
namespace {

// An op has three steps: leaf() on each input, combine() along the tree, finish() on its result.
template <class Combine>
struct Plainly {
  Combine combine;
  template <class V>
  static V leaf(V v) {
    return v;
  }
  template <class V>
  static V finish(V v) {
    return v;
  }
};
template <class Combine>
Plainly(Combine) -> Plainly<Combine>;

constexpr auto kSum = [](auto a, auto b) { return a + b; };
constexpr auto kProd = [](auto a, auto b) { return a * b; };
constexpr auto kAnd = [](auto a, auto b) { return a & b; };
constexpr auto kOr = [](auto a, auto b) { return a | b; };
constexpr auto kXor = [](auto a, auto b) { return a ^ b; };
constexpr auto kMin = []<class V>(V a, V b) {
  if constexpr (std::is_floating_point_v<ElementOf<V>>) {
    // Equal means the same bits, or zeros of either sign, of which -0 has the more bits. NaN is all
    // ones here.
    using Mask = decltype(a == b);
    return bits<V>(bits<Mask>(a < b ? a : b) | (bits<Mask>(a) & (a == b)) | (a != a) | (b != b));
  } else {
    return a < b ? a : b;
  }
};
constexpr auto kMax = []<class V>(V a, V b) {
  if constexpr (std::is_floating_point_v<ElementOf<V>>) {
    using Mask = decltype(a == b);
    return bits<V>((bits<Mask>(a > b ? a : b) & (bits<Mask>(a) | ~(a == b))) | (a != a) | (b != b));
  } else {
    return a > b ? a : b;
  }
};
using Sum = Plainly<std::remove_const_t<decltype(kSum)>>;
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

// On both vectors of a pair.
template <class Op>
struct Twice {
  Op op;
  Pair leaf(Pair v) const { return {op.leaf(v.even), op.leaf(v.odd)}; }
  Pair combine(Pair a, Pair b) const {
    return {op.combine(a.even, b.even), op.combine(a.odd, b.odd)};
  }
  Pair finish(Pair v) const { return {op.finish(v.even), op.finish(v.odd)}; }
};

constexpr std::size_t left_of(std::size_t n) {
  std::size_t left = 1;
  while (left * 2 < n) left *= 2;
  return left;
}

constexpr std::size_t kLine = 64;
// Few enough that a core has loads of several inputs and the stores under way together.
constexpr std::size_t kRefilledBytes = 512;

// Inputs of which one pass holds all in registers.
constexpr std::size_t kPassInputs = 4;

// The bytes of a result, where they are not those of an input.
template <class Format>
constexpr std::size_t stored_stride() {
  if constexpr (requires { Format::kStoredStride; })
    return Format::kStoredStride;
  else
    return Format::kStride;
}

// One format and one op. All loops go over whole vectors, and then over what is left as one.
template <class Format, class Op>
struct Loops {
  using V = typename Format::Accumulator;
  static constexpr std::size_t kBytes = Format::kLanes * Format::kStride;
  static constexpr std::size_t kStoredStride = stored_stride<Format>();
  static constexpr std::size_t kTileVectors = 4096 / sizeof(V);

  // How far results are from the first where inputs are so far.
  static constexpr std::size_t stored(std::size_t bytes) {
    if constexpr (kStoredStride == Format::kStride) return bytes;
    return bytes / Format::kStride * kStoredStride;
  }
  static First first(std::size_t bytes) { return {bytes, stored(bytes)}; }

  template <std::size_t n, class Access>
  static V tree(const Op& op, const std::byte* const* in, std::size_t offset,
                const Access& access) {
    if constexpr (n == 1) {
      using Stored = typename Format::Stored;
      return op.leaf(Format::unpack(access.template load<Stored>(in[0] + offset)));
    } else {
      constexpr std::size_t left = left_of(n);
      return op.combine(tree<left>(op, in, offset, access),
                        tree<n - left>(op, in + left, offset, access));
    }
  }

  // The whole of a small tree, from the inputs to the output.
  template <std::size_t n, class Access>
  static void pass(const Op& op, std::byte* to, const std::byte* const* in, std::size_t offset,
                   std::size_t vectors, const Access& access) {
    const std::byte* from[n];  // a copy that no store can alias
    for (std::size_t i = 0; i < n; ++i) from[i] = in[i] + offset;
    for (std::size_t at = 0; at < vectors * kBytes; at += kBytes)
      access.store(to + stored(at), Format::pack(op.finish(tree<n>(op, from, at, access))));
  }

  // A subtree, into accumulators in L1.
  template <std::size_t n, class Access>
  static void leaves(const Op& op, V* to, const std::byte* const* in, std::size_t offset,
                     std::size_t vectors, const Access& access) {
    const std::byte* from[n];
    for (std::size_t i = 0; i < n; ++i) from[i] = in[i] + offset;
    for (std::size_t i = 0; i < vectors; ++i) to[i] = tree<n>(op, from, i * kBytes, access);
  }

  // A tree of any size over `bytes` from `offset` on, at most a tile of them.
  static void fill(const Op& op, V* to, const std::byte* const* in, std::size_t n,
                   std::size_t offset, std::size_t bytes) {
    if (n > kPassInputs) {
      const std::size_t left = left_of(n);
      V right[kTileVectors];
      fill(op, to, in, left, offset, bytes);
      fill(op, right, in + left, n - left, offset, bytes);
      for (std::size_t i = 0; i * kBytes < bytes; ++i) to[i] = op.combine(to[i], right[i]);
      return;
    }
    const std::size_t vectors = bytes / kBytes, rest = bytes % kBytes;
    some_leaves(op, to, in, n, offset, vectors, Whole{});
    if (rest != 0) some_leaves(op, to + vectors, in, n, offset + vectors * kBytes, 1, first(rest));
  }

  template <class Access>
  static void some_leaves(const Op& op, V* to, const std::byte* const* in, std::size_t n,
                          std::size_t offset, std::size_t vectors, const Access& access) {
    if (n == 1) return leaves<1>(op, to, in, offset, vectors, access);
    if (n == 2) return leaves<2>(op, to, in, offset, vectors, access);
    if (n == 3) return leaves<3>(op, to, in, offset, vectors, access);
    leaves<4>(op, to, in, offset, vectors, access);
  }

  template <class Access>
  static void some_passes(const Op& op, std::byte* to, const ReduceArgs& args, std::size_t offset,
                          std::size_t vectors, const Access& access) {
    if (args.n == 1) return pass<1>(op, to, args.in, offset, vectors, access);
    if (args.n == 2) return pass<2>(op, to, args.in, offset, vectors, access);
    if (args.n == 3) return pass<3>(op, to, args.in, offset, vectors, access);
    pass<4>(op, to, args.in, offset, vectors, access);
  }

  // Trees of many inputs.
  static void tile(const Op& op, std::byte* to, const ReduceArgs& args, std::size_t offset,
                   std::size_t bytes) {
    V sums[kTileVectors];
    fill(op, sums, args.in, args.n, offset, bytes);
    std::size_t at = 0;
    for (; at + kBytes <= bytes; at += kBytes)
      store_vector(to + stored(at), Format::pack(op.finish(sums[at / kBytes])));
    if (at != bytes)
      first(bytes - at).store(to + stored(at), Format::pack(op.finish(sums[at / kBytes])));
  }

  static void reduce(const Op& op, std::byte* to, const ReduceArgs& args, std::size_t offset,
                     std::size_t bytes) {
    if (args.n > kPassInputs) return tile(op, to, args, offset, bytes);
    const std::size_t vectors = bytes / kBytes, rest = bytes % kBytes, whole = bytes - rest;
    some_passes(op, to, args, offset, vectors, Whole{});
    if (rest != 0) some_passes(op, to + stored(whole), args, offset + whole, 1, first(rest));
  }

  // What is streamed starts at a cache line from the second tile on.
  static std::size_t first_tile(const ReduceArgs& args, std::size_t step) {
    const std::size_t past = reinterpret_cast<std::uintptr_t>(args.out) % kLine;
    return past == 0 || past % Format::kStride != 0 ? step : kLine - past;
  }

  static void run(const Op& op, const ReduceArgs& args) {
    constexpr std::size_t kTileBytes = kTileVectors * kBytes;
    const bool streams = kStoredStride == Format::kStride && args.policy == StorePolicy::streaming;
    const std::size_t total = args.count * Format::kStride;
    const std::size_t step = args.refill.bytes != 0            ? kRefilledBytes
                             : streams || args.n > kPassInputs ? kTileBytes
                                                               : total;
    std::byte streamed[stored(kTileBytes)];
    std::size_t next = streams ? first_tile(args, step) : step;
    for (std::size_t done = 0; done < total; next = step) {
      const std::size_t bytes = total - done < next ? total - done : next;
      std::byte* const to = args.out + stored(done);
      if (!streams) {
        reduce(op, to, args, done, bytes);
      } else if (args.n <= kPassInputs && bytes % kLine == 0 &&
                 reinterpret_cast<std::uintptr_t>(to) % kLine == 0) {
        some_passes(op, to, args, done, bytes / kBytes, Streaming{});
      } else {
        reduce(op, streamed, args, done, bytes);
        copy(to, streamed, stored(bytes), StorePolicy::streaming);
      }
      if (done < args.refill.bytes) {
        const std::size_t left = args.refill.bytes - done;
        __builtin_memcpy(args.refill.to + done, args.refill.from + done,
                         left < bytes ? left : bytes);
      }
      done += bytes;
    }
  }
};

template <class Format, class Op>
bool run(const Op& op, const ReduceArgs& args) {
  if constexpr (std::is_same_v<typename Format::Accumulator, Pair>)
    Loops<Format, Twice<Op>>::run({op}, args);
  else
    Loops<Format, Op>::run(op, args);
  return true;
}

template <class Format>
bool run_float(ReduceOp op, const ReduceArgs& args) {
  using T = typename Format::Element;
  using V = Vector<T>;
  switch (op.kind) {
    case ReduceOp::sum:
      return run<Format>(Sum{}, args);
    case ReduceOp::avg:
      return run<Format>(Avg<V>{{}, V{} + static_cast<T>(args.divisor)}, args);
    case ReduceOp::prod:
      return run<Format>(Plainly{kProd}, args);
    case ReduceOp::min:
      return run<Format>(Plainly{kMin}, args);
    case ReduceOp::max:
      return run<Format>(Plainly{kMax}, args);
    case ReduceOp::premul_sum:
      return run<Format>(PremulSum<V>{{}, V{} + static_cast<T>(op.factor)}, args);
    default:
      return false;
  }
}

// For reduce_partial() and reduce_end(): one multiplies the inputs, the other divides. It stays out
// of the way of reduce().
template <class Partial, class End>
[[gnu::noinline]] bool run_widened(ReduceOp op, const ReduceArgs& args) {
  const bool ends = args.widened == Widened::inputs;
  switch (op.kind) {
    case ReduceOp::sum:
      return ends ? run<End>(Sum{}, args) : run<Partial>(Sum{}, args);
    case ReduceOp::prod:
      return ends ? run<End>(Plainly{kProd}, args) : run<Partial>(Plainly{kProd}, args);
    case ReduceOp::avg:
      return ends && run<End>(Avg<Float>{{}, Float{} + static_cast<float>(args.divisor)}, args);
    case ReduceOp::premul_sum:
      return !ends &&
             run<Partial>(PremulSum<Float>{{}, Float{} + static_cast<float>(op.factor)}, args);
    default:
      return false;
  }
}

template <class Whole, class Partial, class End>
bool run_half(ReduceOp op, const ReduceArgs& args) {
  if (args.widened != Widened::nothing) return run_widened<Partial, End>(op, args);
  return run_float<Whole>(op, args);
}

template <class Op>
bool run_on_bytes(const Op& op, std::size_t element_bytes, const ReduceArgs& args) {
  ReduceArgs bytes = args;
  bytes.count *= element_bytes;
  return run<Plain<std::uint8_t>>(op, bytes);
}

// Only order tells signed from unsigned; all other ops work on the bits, the bitwise ones on bytes.
template <class T>
bool run_integer(ReduceOp::Kind kind, const ReduceArgs& args) {
  using Unsigned = Plain<std::make_unsigned_t<T>>;
  switch (kind) {
    case ReduceOp::sum:
      return run<Unsigned>(Sum{}, args);
    case ReduceOp::prod:
      return run<Unsigned>(Plainly{kProd}, args);
    case ReduceOp::min:
      return run<Plain<T>>(Plainly{kMin}, args);
    case ReduceOp::max:
      return run<Plain<T>>(Plainly{kMax}, args);
    case ReduceOp::band:
      return run_on_bytes(Plainly{kAnd}, sizeof(T), args);
    case ReduceOp::bor:
      return run_on_bytes(Plainly{kOr}, sizeof(T), args);
    case ReduceOp::bxor:
      return run_on_bytes(Plainly{kXor}, sizeof(T), args);
    default:
      return false;
  }
}

bool run_bool(ReduceOp::Kind kind, const ReduceArgs& args) {
  switch (kind) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bor:
      return run<Bool>(Plainly{kOr}, args);
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::band:
      return run<Bool>(Plainly{kAnd}, args);
    case ReduceOp::bxor:
      return run<Bool>(Plainly{kXor}, args);
    default:
      return false;
  }
}

}  // namespace

bool C10D_KERNEL_ENTRY(DType dtype, ReduceOp op, const ReduceArgs& args) {
  // clang-format off
  switch (dtype) {
    case DType::f64: return run_float<Plain<double>>(op, args);
    case DType::f32: return run_float<Plain<float>>(op, args);
    case DType::f16: return run_half<F16, F32OfF16, F16OfF32>(op, args);
    case DType::bf16: return run_half<BF16, F32OfBF16, BF16OfF32>(op, args);
    case DType::i64: return run_integer<std::int64_t>(op.kind, args);
    case DType::i32: return run_integer<std::int32_t>(op.kind, args);
    case DType::i16: return run_integer<std::int16_t>(op.kind, args);
    case DType::i8: return run_integer<std::int8_t>(op.kind, args);
    case DType::u64: return run_integer<std::uint64_t>(op.kind, args);
    case DType::u32: return run_integer<std::uint32_t>(op.kind, args);
    case DType::u16: return run_integer<std::uint16_t>(op.kind, args);
    case DType::u8: return run_integer<std::uint8_t>(op.kind, args);
    case DType::boolean: return run_bool(op.kind, args);
    case DType::c64:
    case DType::c128:  // reduce() takes them for pairs of real numbers
    case DType::f8e4m3:
    case DType::f8e5m2: break;  // not reduced
  }
  // clang-format on
  return false;
}

}}  // namespace c10d::v0
