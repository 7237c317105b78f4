// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "c10d/export.h"

// What is known of each op, in one table: names, flight records, benchmarks and tests read it.
// src/base/enum_names.cpp holds it against the structs of the ops.
namespace c10d { inline namespace v0 {

// The alternatives of Op, in its order.
enum class OpKind : std::uint8_t {
  all_reduce,        // AllReduce
  broadcast,         // Broadcast
  all_gather,        // AllGather
  all_gather_v,      // AllGatherV
  reduce_scatter,    // ReduceScatter
  reduce_scatter_v,  // ReduceScatterV
  reduce,            // Reduce
  scan,              // Scan
  exscan,            // Exscan
  gather,            // Gather
  gather_v,          // GatherV
  scatter,           // Scatter
  scatter_v,         // ScatterV
  all_to_all,        // AllToAll
  all_to_all_v,      // AllToAllV
  barrier,           // Barrier
  send,              // Send
  recv               // Recv
};

// Which buffer every rank passes; a rank may leave out the other one.
enum class OpBuffer : std::uint8_t { neither, input, output };
// Which count of elements is the same on all ranks: none, that of the buffer which every rank
// passes, or that count divided by the number of ranks.
enum class AgreedCount : std::uint8_t { none, whole, per_rank };

// The facts of one op.
struct OpTraits {
  OpKind kind;             // which op
  std::string_view name;   // "all_reduce", "send", ...
  bool has_reduce_op;      // whether it takes a ReduceOp
  bool has_root;           // whether it has a root
  bool has_counts;         // whether it takes a count for each rank
  bool is_point_to_point;  // whether it is send or recv; all others are collectives
  OpBuffer required;       // the buffer that every rank passes
  AgreedCount agreed;      // which count the ranks agree on
};

// The table: a row for each op, in the order of OpKind.
inline constexpr auto kOpTraits = [] {
  using enum OpKind;
  constexpr bool no = false, redop = true, root = true, counts = true, p2p = true;
  constexpr auto neither = OpBuffer::neither, in = OpBuffer::input, out = OpBuffer::output;
  constexpr auto none = AgreedCount::none, whole = AgreedCount::whole;
  constexpr auto per_rank = AgreedCount::per_rank;
  // clang-format off
  return std::to_array<OpTraits>({
      {all_reduce,       "all_reduce",       redop, no,   no,     no,  out,     whole},
      {broadcast,        "broadcast",        no,    root, no,     no,  out,     whole},
      {all_gather,       "all_gather",       no,    no,   no,     no,  in,      whole},
      {all_gather_v,     "all_gather_v",     no,    no,   counts, no,  out,     none},
      {reduce_scatter,   "reduce_scatter",   redop, no,   no,     no,  out,     whole},
      {reduce_scatter_v, "reduce_scatter_v", redop, no,   counts, no,  out,     none},
      {reduce,           "reduce",           redop, root, no,     no,  in,      whole},
      {scan,             "scan",             redop, no,   no,     no,  out,     whole},
      {exscan,           "exscan",           redop, no,   no,     no,  out,     whole},
      {gather,           "gather",           no,    root, no,     no,  in,      whole},
      {gather_v,         "gather_v",         no,    root, counts, no,  in,      none},
      {scatter,          "scatter",          no,    root, no,     no,  out,     whole},
      {scatter_v,        "scatter_v",        no,    root, counts, no,  out,     none},
      {all_to_all,       "all_to_all",       no,    no,   no,     no,  out,     per_rank},
      {all_to_all_v,     "all_to_all_v",     no,    no,   counts, no,  out,     none},
      {barrier,          "barrier",          no,    no,   no,     no,  neither, none},
      {send,             "send",             no,    no,   no,     p2p, in,      whole},
      {recv,             "recv",             no,    no,   no,     p2p, out,     whole},
  });
  // clang-format on
}();
// Number of ops.
inline constexpr int kOpCount = static_cast<int>(kOpTraits.size());

static_assert(
    [] {
      for (std::size_t i = 0; i < kOpTraits.size(); ++i)
        if (static_cast<std::size_t>(kOpTraits[i].kind) != i || kOpTraits[i].name.empty())
          return false;
      return true;
    }(),
    "a row of kOpTraits stands at another place than its op in OpKind, or has no name");

// Of a value that OpKind does not have.
inline constexpr OpTraits kUnknownOp{static_cast<OpKind>(kOpCount),
                                     "unknown",
                                     false,
                                     false,
                                     false,
                                     false,
                                     OpBuffer::neither,
                                     AgreedCount::none};
// The facts of an op; kUnknownOp for a value that OpKind does not have.
constexpr const OpTraits& traits_of(OpKind kind) noexcept {
  const auto row = static_cast<std::size_t>(kind);
  return row < kOpTraits.size() ? kOpTraits[row] : kUnknownOp;
}
// Whether the op is send or recv; all others are collectives.
constexpr bool is_point_to_point(OpKind kind) noexcept { return traits_of(kind).is_point_to_point; }
// Whether the op takes a ReduceOp.
constexpr bool is_reduction(OpKind kind) noexcept { return traits_of(kind).has_reduce_op; }

// Name of an op: "all_reduce", "send", ...
C10D_API std::string_view to_string(OpKind kind) noexcept;
// The op of that name. Throws InvalidArgument that lists the names and suggests the nearest one.
C10D_API OpKind op_from_string(std::string_view name);

}}  // namespace c10d::v0
