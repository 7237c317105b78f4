// SPDX-License-Identifier: BSD-3-Clause
// How elements of each dtype lie in memory and as what they accumulate; a part of reduce_loops.h,
// whose rules hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace c10d { inline namespace v0 { namespace {

constexpr std::size_t kWidth = C10D_KERNEL_WIDTH;

template <class T, std::size_t bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(bytes)));
};
template <class T>
using Vector = typename VectorOf<T, kWidth>::type;
template <class V>
using ElementOf = std::remove_cvref_t<decltype(V{}[0])>;

using Float = Vector<float>;
using Word = Vector<std::uint32_t>;
using Half = VectorOf<std::uint16_t, kWidth / 2>::type;

struct Pair {
  Float even, odd;
};

template <class To, class From>
To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <class V>
V load_vector(const std::byte* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
void store_vector(std::byte* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

// How the loops reach a vector in memory.
struct Whole {
  template <class V>
  V load(const std::byte* from) const {
    return load_vector<V>(from);
  }
  template <class V>
  void store(std::byte* to, V v) const {
    store_vector(to, v);
  }
};

// Stores past the caches, to aligned places; where the CPU has none they are as any.
struct Streaming : Whole {
  template <class V>
  void store(std::byte* to, V v) const {
#if defined(__AVX2__)
    if constexpr (sizeof(V) == sizeof(__m256i))
      return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bits<__m256i>(v));
#endif
#if defined(__SSE2__)
    if constexpr (sizeof(V) == sizeof(__m128i))
      return _mm_stream_si128(reinterpret_cast<__m128i*>(to), bits<__m128i>(v));
#endif
    store_vector(to, v);
  }
};

// Only its first bytes, so many of what is loaded and so many of what is stored; what is loaded has
// zeros behind them. A vector that is put together in memory was there 30 to 90 ns later than one
// that is loaded by masks, where the CPU has them.
struct First {
  std::size_t loaded, stored;
  template <class V>
  V load(const std::byte* from) const {
#if defined(__AVX512VL__)
    if constexpr (sizeof(V) == sizeof(__m256i))
      return bits<V>(_mm256_maskz_loadu_epi8(~__mmask32{0} >> (32 - loaded), from));
    else
      return bits<V>(_mm_maskz_loadu_epi8(static_cast<__mmask16>(0xffff >> (16 - loaded)), from));
#else
    V v{};
    __builtin_memcpy(&v, from, loaded);
    return v;
#endif
  }
  template <class V>
  void store(std::byte* to, V v) const {
#if defined(__AVX512VL__)
    if constexpr (sizeof(V) == sizeof(__m256i))
      _mm256_mask_storeu_epi8(to, ~__mmask32{0} >> (32 - stored), bits<__m256i>(v));
    else
      _mm_mask_storeu_epi8(to, static_cast<__mmask16>(0xffff >> (16 - stored)), bits<__m128i>(v));
#else
    __builtin_memcpy(to, &v, stored);
#endif
  }
};

// Every NaN becomes the same one.
template <class V>
V quiet(V v) {
  return v == v ? v : V{} + static_cast<ElementOf<V>>(__builtin_nan(""));
}

template <class T>
struct Plain {
  using Element = T;
  using Accumulator = Vector<T>;
  using Stored = Accumulator;
  static constexpr std::size_t kStride = sizeof(T);
  static constexpr std::size_t kLanes = kWidth / sizeof(T);
  static Accumulator unpack(Accumulator v) { return v; }
  static Accumulator pack(Accumulator v) {
    if constexpr (std::is_floating_point_v<T>) return quiet(v);
    return v;
  }
};

struct Bool {
  using Accumulator = Vector<std::uint8_t>;
  using Stored = Accumulator;
  static constexpr std::size_t kStride = 1;
  static constexpr std::size_t kLanes = kWidth;
  static Accumulator unpack(Accumulator v) { return v != 0 ? Accumulator{} + 1 : Accumulator{}; }
  static Accumulator pack(Accumulator v) { return v; }
};

// A word holds an element of even index and one of odd index, each the upper half of an f32.
struct BF16 {
  using Element = float;
  using Accumulator = Pair;
  using Stored = Word;
  using Uppers = Vector<std::uint16_t>;
  static constexpr std::size_t kStride = 2;
  static constexpr std::size_t kLanes = kWidth / kStride;
  static Pair unpack(Word word) {
    return {bits<Float>(word << 16), bits<Float>(word & 0xffff0000)};
  }
  static Word pack(Pair v) {
    const Word even = bits<Word>(v.even), odd = bits<Word>(v.odd);
    const auto kept = bits<Uppers>(even >> 16 | (odd & 0xffff0000));
    const auto lost = bits<Uppers>((even & 0xffff) | odd << 16);
    const Uppers rounded = round(kept, lost | (kept & 1));
    // What is loaded has zeros in its lower half, and what computes sets an upper bit of each NaN.
    const auto magnitude = bits<Vector<std::int16_t>>(kept & 0x7fff);
    return bits<Word>(magnitude > 0x7f80 ? Uppers{} + 0x7fc0 : rounded);
  }
  static Uppers round(Uppers kept, Uppers lost) {
#if defined(__AVX512VL__)
    return lost > 0x8000 ? kept + 1 : kept;
#else
    // Without masks x86 compares signed numbers only, and selects in more steps than it subtracts.
    return kept - bits<Uppers>(bits<Vector<std::int16_t>>(lost ^ 0x8000) > 0);
#endif
  }
};

// Without conversion instructions: no step makes or takes an f32 denormal, which the CPU may be set
// to flush.
inline Float widen(Half half) {
  const Word word = __builtin_convertvector(half, Word);
  const Word magnitude = word & 0x7fff;
  const Float denormal =
      __builtin_convertvector(bits<Vector<std::int32_t>>(magnitude), Float) * 0x1p-24f;
  const Word normal = (magnitude << 13) + (112u << 23);
  const Word special = (magnitude << 13) | 0x7f800000u;
  const Word result = magnitude < 0x400    ? bits<Word>(denormal)
                      : magnitude < 0x7c00 ? normal
                                           : special;
  return bits<Float>(result | (word & 0x8000) << 16);
}

inline Half narrow(Float v) {
  const Word word = bits<Word>(v);
  const Word magnitude = word & 0x7fffffff;
  // Adding 0.5, whose last bit weighs as much as that of an f16 denormal, makes the FPU round
  // there.
  const Word denormal = bits<Word>(bits<Float>(magnitude) + 0.5f) - 0x3f000000u;
  const Word normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  const Word infinite = Word{} + 0x7c00;
  const Word result = magnitude < 0x38800000u   ? denormal
                      : magnitude < 0x477ff000u ? normal
                                                : infinite;
  const Word number = magnitude > 0x7f800000u ? Word{} + 0x7e00 : result;
  return __builtin_convertvector(number | (word >> 16 & 0x8000), Half);
}

struct F16 {
  using Element = float;
  using Accumulator = Float;
  using Stored = Half;
  static constexpr std::size_t kStride = 2;
  static constexpr std::size_t kLanes = kWidth / sizeof(float);
  static Float unpack(Half half) {
#if defined(__AVX2__)
    return bits<Float>(_mm256_cvtph_ps(bits<__m128i>(half)));
#elif defined(__aarch64__)
    return bits<Float>(vcvt_f32_f16(bits<float16x4_t>(half)));
#else
    return widen(half);
#endif
  }
  static Half pack(Float v) {
    const Float number = quiet(v);
#if defined(__AVX2__)
    return bits<Half>(_mm256_cvtps_ph(bits<__m256>(number), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
    return bits<Half>(vcvt_f16_f32(bits<float32x4_t>(number)));
#else
    return narrow(number);
#endif
  }
};

// An f32 in the order of the elements on one side, whatever the width of vectors: another CPU goes
// on with it.
struct F32OfF16 : F16 {
  static constexpr std::size_t kStoredStride = 4;
  static Float pack(Float v) { return quiet(v); }
};
struct F16OfF32 : F16 {
  using Stored = Float;
  static constexpr std::size_t kStride = 4, kStoredStride = 2;
  static Float unpack(Float v) { return v; }
};
struct F32OfBF16 : F32OfF16 {
  static Float unpack(Half half) {
#if defined(__AVX2__)  // g++ widens in halves
    const Word word = bits<Word>(_mm256_cvtepu16_epi32(bits<__m128i>(half)));
#else
    const Word word = __builtin_convertvector(half, Word);
#endif
    return bits<Float>(word << 16);
  }
};
struct BF16OfF32 : F16OfF32 {
  static Half pack(Float v) {
    const Word word = bits<Word>(quiet(v));
    const Word rounded = (word + 0x7fff + (word >> 16 & 1)) >> 16;
#if defined(__AVX2__)
    const auto wide = bits<__m256i>(rounded);
    return bits<Half>(
        _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)));
#else
    return __builtin_convertvector(rounded, Half);
#endif
  }
};

}}}  // namespace c10d::v0
