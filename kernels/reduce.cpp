// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/reduce_entry.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#endif

namespace c10d { inline namespace v0 {
namespace {

constexpr std::array kIsas = {KernelIsa::baseline, KernelIsa::avx2, KernelIsa::avx512};

std::size_t count_runnable() noexcept {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  if (!f16c || !__builtin_cpu_supports("avx2")) return 1;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? 3 : 2;
#else
  return 1;
#endif
}

// How this thread rounds and what it does with denormals; kHappened are no settings.
#if defined(__x86_64__)
using Arithmetic = unsigned;
constexpr Arithmetic kStandard = 0x1f80, kHappened = 0x3f;
Arithmetic arithmetic() noexcept { return _mm_getcsr(); }
void set_arithmetic(Arithmetic value) noexcept { _mm_setcsr(value); }
#elif defined(__aarch64__)
using Arithmetic = std::uint64_t;
constexpr Arithmetic kStandard = 0, kHappened = 0;
Arithmetic arithmetic() noexcept {
  Arithmetic value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void set_arithmetic(Arithmetic value) noexcept { asm volatile("msr fpcr, %0" ::"r"(value)); }
#else
using Arithmetic = unsigned;
constexpr Arithmetic kStandard = 0, kHappened = 0;
Arithmetic arithmetic() noexcept { return kStandard; }
void set_arithmetic(Arithmetic) noexcept {}
#endif

// Some programs flush denormals, and a library made with -ffast-math has the thread that loads it
// do so: bits must not depend on that.
class InStandardArithmetic {
 public:
  InStandardArithmetic() noexcept : before_(arithmetic()) {
    if (differs()) set_arithmetic(kStandard);
  }
  ~InStandardArithmetic() {
    if (differs()) set_arithmetic(before_);
  }
  InStandardArithmetic(const InStandardArithmetic&) = delete;
  InStandardArithmetic& operator=(const InStandardArithmetic&) = delete;

 private:
  bool differs() const noexcept { return (before_ & ~kHappened) != kStandard; }
  const Arithmetic before_;
};

ReduceEntry* entry_of(KernelIsa isa) noexcept {
#if defined(__x86_64__)
  if (isa == KernelIsa::avx2) return reduce_avx2;
  if (isa == KernelIsa::avx512) return reduce_avx512;
#endif
  static_cast<void>(isa);
  return reduce_baseline;
}

KernelIsa fastest() noexcept {
  static const KernelIsa isa = runnable_isas().back();
  return isa;
}

// Complex numbers are reduced part by part.
std::size_t numbers_in(DType dtype, std::size_t count) noexcept {
  return is_complex(dtype) ? 2 * count : count;
}

void run(KernelIsa isa, DType dtype, ReduceOp op, const ReduceArgs& args) {
  const bool has_order = !is_complex(dtype);
  const bool adds =
      op.kind == ReduceOp::sum || op.kind == ReduceOp::avg || op.kind == ReduceOp::premul_sum;
  if ((!has_order && !adds) || !entry_of(isa)(real_of(dtype), op, args))
    throw std::invalid_argument("reduce: op " + std::to_string(op.kind) +
                                " has no meaning on dtype " +
                                std::to_string(static_cast<int>(dtype)));
}

// A sum in the place of `step`, which is done elsewhere; where it has no meaning it stays.
ReduceOp without(ReduceOp::Kind step, DType dtype, ReduceOp op) noexcept {
  const bool has_it = is_floating(dtype) || is_complex(dtype);
  return op.kind == step && has_it ? ReduceOp(ReduceOp::sum) : op;
}

// The ranks on the left of the tree over n, and on its right all others.
std::size_t left_of(std::size_t n) noexcept { return std::bit_floor(n - 1); }

void add_nodes(std::vector<TreeNode>& nodes, TreeNode node, std::size_t first, std::size_t last) {
  const std::size_t end = node.first + node.count;
  if (end <= first || last <= node.first) return;
  if (first <= node.first && end <= last) return nodes.push_back(node);
  const std::size_t left = left_of(node.count);
  add_nodes(nodes, {node.first, left}, first, last);
  add_nodes(nodes, {node.first + left, node.count - left}, first, last);
}

// Some partial results side by side: those of a node.
struct Values {
  std::span<const std::byte* const> in;
  std::span<const std::size_t> ranks;

  std::size_t all_ranks() const noexcept {
    return std::accumulate(ranks.begin(), ranks.end(), std::size_t{0});
  }
  std::pair<Values, Values> parts() const {
    const std::size_t left = left_of(all_ranks());
    std::size_t values = 0, sum = 0;
    while (sum < left && values + 1 < ranks.size()) sum += ranks[values++];
    if (sum != left)
      throw std::invalid_argument("reduce_end: partial results that are no nodes of the tree");
    return {{in.first(values), ranks.first(values)}, {in.subspan(values), ranks.subspan(values)}};
  }
  // Whether the rest of their tree is the tree over so many inputs. Throws if they are no nodes.
  [[gnu::noinline]] bool are_as_inputs() const {
    if (in.size() == 1) return true;
    const auto [left, right] = parts();
    const bool left_is = left.are_as_inputs(), right_is = right.are_as_inputs();
    return left_is && right_is && left.in.size() == left_of(in.size());
  }
};

// What combines values two at a time, a tile after the other.
struct Combining {
  static constexpr std::size_t kTileBytes = 2048;

  KernelIsa isa;
  DType dtype;
  ReduceOp op;

  // The values from `offset` on as one: at `to`, or where the only one lies. If it were inlined
  // into itself, the tiles of all copies would be on the stack together.
  [[gnu::noinline]] const std::byte* value(const Values& values, std::size_t offset,
                                           std::size_t count, std::byte* to) const {
    if (values.in.size() == 1) return values.in.front() + offset;
    alignas(64) std::byte other[kTileBytes];
    const auto [left, right] = values.parts();
    const std::byte* const in[] = {value(left, offset, count, to),
                                   value(right, offset, count, other)};
    run(isa, dtype, op, {to, in, 2, numbers_in(dtype, count), 1});
    return to;
  }
};

}  // namespace

std::span<const KernelIsa> runnable_isas() noexcept {
  static const std::size_t runnable = count_runnable();
  return std::span(kIsas).first(runnable);
}

std::vector<TreeNode> tree_nodes(std::size_t n, std::size_t first, std::size_t last) {
  std::vector<TreeNode> nodes;
  if (first < last) add_nodes(nodes, {0, n}, first, last);
  return nodes;
}

DType partial_type(DType dtype, ReduceOp::Kind kind) noexcept {
  return rounds(kind) && (dtype == DType::f16 || dtype == DType::bf16) ? DType::f32 : dtype;
}

void reduce(KernelIsa isa, DType dtype, ReduceOp op, std::byte* out,
            std::span<const std::byte* const> in, std::size_t count, StorePolicy policy,
            const Copying& refill) {
  if (in.empty()) throw std::invalid_argument("reduce: no input");
  if (count == 0) return;
  const InStandardArithmetic standard;
  run(isa, dtype, op,
      {out, in.data(), in.size(), numbers_in(dtype, count), in.size(), policy, refill});
}

void reduce(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> in,
            std::size_t count, StorePolicy policy, const Copying& refill) {
  reduce(fastest(), dtype, op, out, in, count, policy, refill);
}

void reduce_partial(KernelIsa isa, DType dtype, ReduceOp op, std::byte* out,
                    std::span<const std::byte* const> in, std::size_t count) {
  if (in.empty()) throw std::invalid_argument("reduce_partial: no input");
  if (count == 0) return;
  ReduceArgs args{out, in.data(), in.size(), numbers_in(dtype, count), 1};
  if (partial_type(dtype, op.kind) != dtype) args.widened = Widened::output;
  const InStandardArithmetic standard;
  run(isa, dtype, without(ReduceOp::avg, dtype, op), args);
}

void reduce_partial(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> in,
                    std::size_t count) {
  reduce_partial(fastest(), dtype, op, out, in, count);
}

void reduce_end(KernelIsa isa, DType dtype, ReduceOp op, std::byte* out,
                std::span<const std::byte* const> in, std::span<const std::size_t> ranks,
                std::size_t count) {
  if (in.empty() || in.size() != ranks.size() || std::ranges::count(ranks, std::size_t{0}) != 0)
    throw std::invalid_argument("reduce_end: as many partial results as numbers of ranks");
  const Values values{in, ranks};
  const bool in_one_pass = values.are_as_inputs();
  if (count == 0) return;
  const DType partial = partial_type(dtype, op.kind);
  const ReduceOp added = without(ReduceOp::premul_sum, dtype, op);
  ReduceArgs args{out, in.data(), in.size(), numbers_in(dtype, count), values.all_ranks()};
  if (partial != dtype) args.widened = Widened::inputs;
  const InStandardArithmetic standard;
  if (in_one_pass) return run(isa, dtype, added, args);

  const Combining combining{isa, partial, without(ReduceOp::avg, dtype, added)};
  const auto [left, right] = values.parts();
  args.n = 2;
  std::size_t tile = Combining::kTileBytes / size_of(partial);
  for (std::size_t done = 0; done < count; done += tile) {
    alignas(64) std::byte tiles[2][Combining::kTileBytes];
    tile = std::min(tile, count - done);
    const std::size_t offset = done * size_of(partial);
    const std::byte* const parts[] = {combining.value(left, offset, tile, tiles[0]),
                                      combining.value(right, offset, tile, tiles[1])};
    args.in = parts;
    args.out = out + done * size_of(dtype);
    args.count = numbers_in(dtype, tile);
    run(isa, dtype, added, args);
  }
}

void reduce_end(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> in,
                std::span<const std::size_t> ranks, std::size_t count) {
  reduce_end(fastest(), dtype, op, out, in, ranks, count);
}

}}  // namespace c10d::v0
