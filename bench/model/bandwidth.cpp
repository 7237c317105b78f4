// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/bandwidth.h"

#include <algorithm>

namespace c10d::bench {
namespace {

// The bytes that the ranks together must at least read and write, whatever the algorithm.
std::uint64_t least_traffic(const Case& c, int ranks) {
  const auto n = static_cast<std::uint64_t>(ranks);
  const std::uint64_t s = c.bytes;
  switch (c.op) {
    case BenchOp::all_reduce:
    case BenchOp::scan:
    case BenchOp::all_to_all:
    case BenchOp::all_to_all_v:
      return 2 * n * s;
    case BenchOp::exscan:  // neither the last input nor a first output
      return 2 * (n - 1) * s;
    case BenchOp::broadcast:
    case BenchOp::reduce:
      return (n + 1) * s;
    case BenchOp::all_gather:
    case BenchOp::all_gather_v:
    case BenchOp::reduce_scatter:
    case BenchOp::reduce_scatter_v:
      return n * s + s;
    case BenchOp::gather:
    case BenchOp::gather_v:
    case BenchOp::scatter:
    case BenchOp::scatter_v:
    case BenchOp::send:
    case BenchOp::isend:
      return 2 * s;
    case BenchOp::barrier:
      break;
  }
  return 0;
}

// What a rank must send or receive, whatever the algorithm, as a part of S: the factors of
// nccl-tests. 0 where it has none.
double link_share(BenchOp op, int ranks) {
  const double n = ranks;
  switch (op) {
    case BenchOp::all_reduce:
      return 2 * (n - 1) / n;
    case BenchOp::all_gather:
    case BenchOp::reduce_scatter:
    case BenchOp::gather:
    case BenchOp::scatter:
    case BenchOp::all_to_all:
    case BenchOp::all_gather_v:
    case BenchOp::reduce_scatter_v:
    case BenchOp::gather_v:
    case BenchOp::scatter_v:
    case BenchOp::all_to_all_v:
      return (n - 1) / n;
    case BenchOp::broadcast:
    case BenchOp::reduce:
    case BenchOp::send:
    case BenchOp::isend:
      return 1;
    case BenchOp::scan:
    case BenchOp::exscan:
    case BenchOp::barrier:
      break;
  }
  return 0;
}

}  // namespace

bool has_connections(const CellRecord& cell) {
  return cell.backend == "gloo" || cell.backend == "raw:gloo" || cell.backend == "raw:tcp" ||
         cell.placement == kGpuPerRank ||
         (cell.placement == kSeveralHosts && cell.backend != "memcpy");
}

double bytes_between_hosts(std::string_view op, std::uint64_t bytes, int hosts, int ranks) {
  const auto facts = std::ranges::find(op_facts(), op, &OpFacts::name);
  if (facts == op_facts().end()) return 0;
  const BenchOp kind = facts->op;
  const bool has_pairs = kind == BenchOp::send || kind == BenchOp::isend;
  if (has_pairs && ranks != hosts) return 0;  // neighbours, which share a host
  const bool every_rank_sends = kind == BenchOp::all_to_all || kind == BenchOp::all_to_all_v;
  return static_cast<double>(bytes) * link_share(kind, hosts) *
         (every_rank_sends ? static_cast<double>(ranks) / hosts : 1);
}

void put_bandwidth(const Case& c, int hosts, int ranks, CellRecord& cell) {
  if (c.bytes == 0 || cell.us.p50 <= 0) return;
  const double per_us = c.concurrent * 1e-3 / cell.us.p50;
  cell.alg = static_cast<double>(c.bytes) * per_us;
  if (const double share = link_share(c.op, ranks); share > 0 && has_connections(cell))
    cell.bus = *cell.alg * share;
  if (cell.placement == kSeveralHosts && has_connections(cell))
    if (const double least = bytes_between_hosts(facts_of(c.op).name, c.bytes, hosts, ranks);
        least > 0)
      cell.net = least * per_us;
  if (cell.placement == kOneHost) cell.mem = static_cast<double>(least_traffic(c, ranks)) * per_us;
}

}  // namespace c10d::bench
