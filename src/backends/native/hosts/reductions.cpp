// SPDX-License-Identifier: BSD-3-Clause
// Reductions over hosts. Each host reduces the inputs of its own ranks as far as the tree over the
// ranks allows (PartialSums), its lanes send these values to the hosts that end the tree, and the
// results go on from there.
#include <algorithm>
#include <array>
#include <vector>

#include "src/backends/common/prefix_reduction.h"
#include "src/backends/native/hosts/lane_exchange.h"
#include "src/backends/native/hosts/movement.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// Part by part: the ranks of each host reduce, its lanes exchange, and all ranks get the result.
// algorithm_of(count): between hosts.
template <class AlgorithmOf>
bool reduce_for_all(HostCollective& collective, Reducer& reducer, const Parts& parts,
                    AlgorithmOf algorithm_of, const View& output, const ConstView& input) {
  const Placement& placement = collective.placement();
  const std::size_t element = size_of(input.dtype);
  std::array<Pointers, kPartsUnderWay> values;
  const auto reduce_here = [&](std::size_t part, Scratch& scratch) {
    const auto counts = counts_of_lanes(placement, placement.host(), parts[part].count, element);
    return reducer.reduce_here(scratch, part_of(input, parts[part]), counts,
                               values[part % kPartsUnderWay]);
  };
  const auto exchange = [&](std::size_t part, Scratch& scratch) {
    if (!placement.is_lane()) return true;
    const Range all = parts[part];
    const Range own = placement.carried_by(placement.place(), all.count, element);
    return reduce_everywhere(collective, scratch, reducer, algorithm_of(all.count),
                             values[part % kPartsUnderWay],
                             bytes_of(output) + (all.first + own.first) * element, own.count);
  };
  const auto share = [&](std::size_t part) {
    return share_lanes(collective, part_of(output, parts[part]));
  };
  return collective.run_parts(parts.count(), {reduce_here, exchange, share});
}

// A lane reduces `count` elements so that the lane on host `ending` has the results.
bool reduce_on(HostCollective& collective, Scratch& scratch, const Reducer& reducer, int ending,
               const Pointers& values, std::byte* out, std::size_t count) {
  LaneExchange exchange;
  for (int host = 0; host < collective.placement().hosts(); ++host) {
    exchange.given.push_back(values);
    exchange.counts.push_back(host == ending ? count : 0);
  }
  exchange.result = out;
  return exchange_parts(collective, scratch, reducer, exchange);
}

// Host by host: how the ranks of a host share what they end, in elements of its area. As their own
// blocks, if each is a lane.
std::vector<std::size_t> shares_on(const Placement& placement, int host, const RankBlocks& blocks,
                                   std::size_t element) {
  if (placement.ranks_on(host) == placement.lanes()) return blocks.counts_on(host);
  return counts_of_lanes(placement, host, blocks.of_host(host).count, element);
}

// Of what a host ends, by the place of the rank that carries it there: `shares` of the lanes of
// that host, for as many ranks as this one has.
std::vector<std::size_t> padded(std::vector<std::size_t> shares, std::size_t lanes,
                                std::size_t ranks) {
  shares.resize(lanes);
  shares.resize(ranks);
  return shares;
}

// How many elements [first, first + counts[i]), one after the other, share with `range`.
std::vector<std::size_t> shared_with(const std::vector<std::size_t>& counts, Range range) {
  std::vector<std::size_t> shared;
  std::size_t first = 0;
  for (const std::size_t count : counts) {
    const std::size_t from = std::max(first, range.first);
    const std::size_t to = std::min(first + count, range.first + range.count);
    shared.push_back(from < to ? to - from : 0);
    first += count;
  }
  return shared;
}

bool reduce_blocks(HostCollective& collective, const View& output, const ConstView& input,
                   ReduceOp op, const RankBlocks& blocks) {
  const Placement& placement = collective.placement();
  const std::size_t element = size_of(input.dtype);
  Reducer reducer(collective, input.dtype, op);
  const HostAlgorithm algorithm =
      collective.plan().find(reducer.traffic(OpKind::reduce_scatter, blocks.total()));
  if (algorithm != HostAlgorithm::one_shot) {  // an all_reduce, of which it keeps its own block
    const View all(collective.scratch().take(blocks.total(), input.dtype), blocks.total(),
                   input.dtype);
    if (!reduce_for_all(
            collective, reducer, Parts(blocks.total()), [&](std::size_t) { return algorithm; }, all,
            input))
      return false;
    copy_bytes(bytes_of(output), bytes_of(all) + blocks.offset(placement.rank()) * element,
               output.bytes());
    return true;
  }
  ConstView ordered = input;
  if (!placement.in_order()) {
    std::byte* const copied = collective.scratch().take(blocks.total(), input.dtype);
    blocks.to_hosts(copied, bytes_of(input), element);
    ordered = ConstView(copied, blocks.total(), input.dtype);
  }
  const auto place = static_cast<std::size_t>(placement.place());
  const auto lanes = static_cast<std::size_t>(placement.lanes());
  const std::size_t ranks = placement.neighbours().size();
  LaneExchange exchange;
  for (int host = 0; host < placement.hosts(); ++host) {
    const Range area = blocks.of_host(host);
    const std::vector<std::size_t> shares =
        padded(shares_on(placement, host, blocks, element), lanes, ranks);
    Pointers values;
    if (!reducer.reduce_here(collective.scratch(), part_of(ordered, area), shares, values))
      return false;
    exchange.given.push_back(std::move(values));
    exchange.counts.push_back(shares[place]);
  }
  const std::vector<std::size_t> shares = shares_on(placement, placement.host(), blocks, element);
  const std::vector<std::size_t> own_blocks = blocks.counts_on(placement.host());
  const bool is_own = shares == own_blocks;
  exchange.result =
      is_own ? bytes_of(output) : collective.scratch().take(shares[place], input.dtype);
  if (placement.is_lane() && !exchange_parts(collective, collective.scratch(), reducer, exchange))
    return false;
  if (is_own) return true;
  return collective.stage(AllToAllV{output, ConstView(exchange.result, shares[place], input.dtype),
                                    shared_with(shares, range_of(own_blocks, placement.place())),
                                    shared_with(own_blocks, range_of(shares, placement.place()))});
}

// Every rank reduces its slice of what it has of all ranks, for all ranks.
template <class T>
bool run_prefix(HostCollective& collective, const T& op) {
  const int size = collective.placement().size(), rank = collective.rank();
  const auto n = static_cast<std::size_t>(size);
  const auto fresh = [&](std::size_t count) {
    return View(collective.scratch().take(count, op.input.dtype), count, op.input.dtype);
  };
  if (op.input.bytes() * n <= kGatherAllBytes) {
    const View all = fresh(op.input.count * n);
    if (!run(collective, AllGather{all, op.input})) return false;
    reduce_prefix(op, op.output, all.data, rank);
    return true;
  }
  const std::vector<std::size_t> given = slices(op.input.count, size);
  const std::vector<std::size_t> own(n, given[static_cast<std::size_t>(rank)]);
  const View inputs = fresh(own.front() * n), results = fresh(own.front() * n);
  if (!run(collective, AllToAllV{inputs, op.input, own, given})) return false;
  reduce_prefixes(op, results, inputs.data, size);
  const bool has_result = rank >= kFirstResult<T>;
  return run(collective,
             AllToAllV{has_result ? op.output : fresh(op.output.count), results, given, own});
}

}  // namespace

bool run(HostCollective& collective, const AllReduce& op) {
  Reducer reducer(collective, op.input.dtype, op.op);
  const auto algorithm_of = [&](std::size_t count) {
    return collective.plan().find(reducer.traffic(OpKind::all_reduce, count));
  };
  return reduce_for_all(collective, reducer,
                        parts_of(collective.placement(), op.input.count, op.input.dtype),
                        algorithm_of, op.output, op.input);
}

// Part by part, one after the other: the hosts but that of the root run ahead anyway, as far as the
// buffers of their connections have room.
bool run(HostCollective& collective, const Reduce& op) {
  const Placement& placement = collective.placement();
  Reducer reducer(collective, op.input.dtype, op.op);
  const std::size_t element = size_of(op.input.dtype);
  const int root_host = placement.host_of(op.root);
  const bool is_root = op.root == placement.rank();
  const Parts parts = parts_of(placement, op.input.count, op.input.dtype);
  Scratch& scratch = collective.scratch();
  for (std::size_t part = 0; part < parts.count(); ++part, scratch.reset()) {
    const std::vector<std::size_t> counts =
        counts_of_lanes(placement, placement.host(), parts[part].count, element);
    Pointers values;
    if (!reducer.reduce_here(scratch, part_of(op.input, parts[part]), counts, values)) return false;
    const View output = is_root ? part_of(op.output, parts[part]) : View();
    const std::size_t own = counts[static_cast<std::size_t>(placement.place())];
    std::byte* const result =
        is_root && collective.is_alone() ? bytes_of(output) : scratch.take(own, op.input.dtype);
    if (placement.is_lane() &&
        !reduce_on(collective, scratch, reducer, root_host, values, result, own))
      return false;
    if (placement.host() == root_host && !collective.is_alone() &&
        !collective.stage(GatherV{output, ConstView(result, own, op.input.dtype), counts,
                                  placement.place_of(op.root)}))
      return false;
  }
  return true;
}

bool run(HostCollective& collective, const ReduceScatter& op) {
  return reduce_blocks(collective, op.output, op.input, op.op,
                       {collective.placement(), op.output.count});
}
bool run(HostCollective& collective, const ReduceScatterV& op) {
  return reduce_blocks(collective, op.output, op.input, op.op, {collective.placement(), op.counts});
}

bool run(HostCollective& collective, const Scan& op) { return run_prefix(collective, op); }
bool run(HostCollective& collective, const Exscan& op) { return run_prefix(collective, op); }

}}}  // namespace c10d::v0::native
