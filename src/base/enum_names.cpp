// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <span>
#include <utility>
#include <variant>

#include "c10d/collective.h"
#include "c10d/error.h"
#include "c10d/view.h"
#include "c10d/work.h"
#include "src/base/suggest.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr auto kDTypes = std::to_array<std::string_view>(
    {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool",
     "c64", "c128", "f8e4m3", "f8e5m2"});
static_assert(kDTypes.size() == kDTypeCount);
constexpr auto kReduceOps = std::to_array<std::string_view>(
    {"sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "premul_sum"});
static_assert(kReduceOps.size() == kReduceOpCount);
constexpr auto kOps = [] {
  std::array<std::string_view, kOpCount> names{};
  for (const OpTraits& traits : kOpTraits)
    names[static_cast<std::size_t>(traits.kind)] = traits.name;
  return names;
}();
constexpr auto kDeviceTypes = std::to_array<std::string_view>({"cpu", "cuda"});
static_assert(kDeviceTypes.size() == kDeviceTypeCount);

// What kOpTraits says of each op must be what its struct has.
template <class T>
constexpr bool has_traits(const OpTraits& traits) {
  constexpr bool in = requires(T o) { o.input; };
  constexpr bool out = requires(T o) { o.output; };
  constexpr bool counts = requires(T o) { o.counts; }
  || requires(T o) { o.output_counts; };
  return traits.has_reduce_op == requires(T o) { o.op; }
  &&traits.has_root == requires(T o) { o.root; }
  &&traits.has_counts == counts&& traits.is_point_to_point == requires(T o) { o.peer; }
  &&(traits.required == OpBuffer::neither ? !in && !out
     : traits.required == OpBuffer::input ? in
                                          : out) &&
      (traits.agreed == AgreedCount::none) == (counts || (!in && !out));
}
// has_traits() passes for another op of the same shape.
static_assert(kKindOf<AllReduce> == OpKind::all_reduce && kKindOf<Broadcast> == OpKind::broadcast &&
                  kKindOf<AllGather> == OpKind::all_gather &&
                  kKindOf<AllGatherV> == OpKind::all_gather_v &&
                  kKindOf<ReduceScatter> == OpKind::reduce_scatter &&
                  kKindOf<ReduceScatterV> == OpKind::reduce_scatter_v &&
                  kKindOf<Reduce> == OpKind::reduce && kKindOf<Scan> == OpKind::scan &&
                  kKindOf<Exscan> == OpKind::exscan && kKindOf<Gather> == OpKind::gather &&
                  kKindOf<GatherV> == OpKind::gather_v && kKindOf<Scatter> == OpKind::scatter &&
                  kKindOf<ScatterV> == OpKind::scatter_v &&
                  kKindOf<AllToAll> == OpKind::all_to_all &&
                  kKindOf<AllToAllV> == OpKind::all_to_all_v &&
                  kKindOf<Barrier> == OpKind::barrier && kKindOf<Send> == OpKind::send &&
                  kKindOf<Recv> == OpKind::recv,
              "an op stands at another place in Op than in OpKind");
static_assert(
    []<std::size_t... I>(std::index_sequence<I...>) {
      return (has_traits<std::variant_alternative_t<I, Op>>(kOpTraits[I]) && ...);
    }(std::make_index_sequence<std::variant_size_v<Op>>()),
    "a row of kOpTraits says of an op what its struct does not have");

// Of a value that may come from a caller's cast.
std::string_view name_of(std::size_t value, std::span<const std::string_view> names) noexcept {
  return value < names.size() ? names[value] : "unknown";
}

template <class Enum>
Enum from_string(std::string_view what, std::string_view name,
                 std::span<const std::string_view> names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  const std::string_view near = nearest(name, names);
  throw InvalidArgument(fmt::format("unknown {} '{}'{} known: {}", what, name,
                                    near.empty() ? ";" : fmt::format("; did you mean {}?", near),
                                    fmt::join(names, " ")));
}

}  // namespace

std::string_view to_string(DType dtype) noexcept {
  return name_of(static_cast<std::size_t>(dtype), kDTypes);
}
DType dtype_from_string(std::string_view name) {
  return from_string<DType>("dtype", name, kDTypes);
}

std::string_view to_string(DeviceType type) noexcept {
  return name_of(static_cast<std::size_t>(type), kDeviceTypes);
}

std::string_view to_string(ReduceOp::Kind kind) noexcept { return name_of(kind, kReduceOps); }
ReduceOp::Kind reduce_op_from_string(std::string_view name) {
  return from_string<ReduceOp::Kind>("reduce op", name, kReduceOps);
}

std::string_view to_string(OpKind kind) noexcept { return traits_of(kind).name; }
OpKind op_from_string(std::string_view name) { return from_string<OpKind>("op", name, kOps); }

std::string_view to_string(WorkState state) noexcept {
  constexpr std::array<std::string_view, 5> names = {"running", "ok", "failed", "cancelled",
                                                     "timed out"};
  return name_of(static_cast<std::size_t>(state), names);
}

std::string_view why_unsupported(ReduceOp::Kind kind, DType dtype) noexcept {
  const bool floating = is_floating(dtype) || is_complex(dtype);
  switch (kind) {
    case ReduceOp::min:
    case ReduceOp::max:
      return is_complex(dtype) ? "complex numbers have no order" : "";
    case ReduceOp::prod:
      return is_complex(dtype) ? "complex numbers are reduced part by part, which is no product"
                               : "";
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return floating ? "bitwise reduce ops need an integer or bool dtype" : "";
    case ReduceOp::avg:
      return floating ? "" : "avg needs a floating point dtype: the mean of integers is not one";
    case ReduceOp::premul_sum:
      return floating ? "" : "premul_sum needs a floating point dtype: its factor is not whole";
    default:
      return "";
  }
}

std::string_view why_unsupported(OpKind op, ReduceOp::Kind kind, DType dtype) noexcept {
  if (!is_reduction(op)) return "";
  if (kind == ReduceOp::avg && (op == OpKind::scan || op == OpKind::exscan))
    return "scan and exscan have no avg: each rank would divide by another number";
  return why_unsupported(kind, dtype);
}

}}  // namespace c10d::v0
