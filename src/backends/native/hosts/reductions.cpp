// SPDX-License-Identifier: BSD-3-Clause
// Reductions over hosts. Each host reduces the inputs of its own ranks as far as the tree over the
// ranks allows (PartialSums), its lanes send these values to the hosts that end the tree, and the
// results go on from there.
#include <algorithm>
#include <vector>

#include "src/backends/common/prefix_reduction.h"
#include "src/backends/native/hosts/lane_exchange.h"
#include "src/backends/native/hosts/movement.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// What a lane carries of a reduction at a time, where ranks of its host reduce first.
constexpr std::size_t kSegment = std::size_t{1} << 20;
// The ranks of each host reduce, its lanes exchange, and all ranks get the result.
bool reduce_for_all(HostCollective& collective, Reducer& reducer, HostAlgorithm algorithm,
                    const View& output, const ConstView& input) {
  const Placement& placement = collective.placement();
  const std::size_t element = size_of(input.dtype);
  Pointers values;
  if (!reducer.reduce_here(
          input, counts_of_lanes(placement, placement.host(), input.count, element), values))
    return false;
  const Range own = placement.carried_by(placement.place(), input.count, element);
  if (placement.is_lane() && !reduce_everywhere(collective, reducer, algorithm, values,
                                                bytes_of(output) + own.first * element, own.count))
    return false;
  return share_lanes(collective, output);
}

// A lane reduces `count` elements so that the lane on host `ending` has the results.
bool reduce_on(HostCollective& collective, const Reducer& reducer, int ending,
               const Pointers& values, std::byte* out, std::size_t count) {
  LaneExchange exchange;
  for (int host = 0; host < collective.placement().hosts(); ++host) {
    exchange.given.push_back(values);
    exchange.counts.push_back(host == ending ? count : 0);
  }
  exchange.result = out;
  return exchange_parts(collective, reducer, exchange);
}

// Elements of a reduction that the lanes of a host carry at a time: all where no rank reduces
// first.
std::size_t segment_of(const HostCollective& collective, const Reducer& reducer,
                       std::size_t count) {
  const auto lanes = static_cast<std::size_t>(collective.placement().lanes());
  return collective.placement().most_ranks() == 1 ? count
                                                  : lanes * (kSegment / size_of(reducer.dtype()));
}

template <class Use>
bool for_each_segment(HostCollective& collective, std::size_t count, std::size_t segment, Use use) {
  for (std::size_t first = 0; first < count; first += segment) {
    if (!use(Range{first, std::min(segment, count - first)})) return false;
    collective.release_scratch();
  }
  return true;
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

Range range_of(const std::vector<std::size_t>& counts, int place) {
  std::size_t first = 0;
  for (int i = 0; i < place; ++i) first += counts[static_cast<std::size_t>(i)];
  return {first, counts[static_cast<std::size_t>(place)]};
}

bool reduce_blocks(HostCollective& collective, const View& output, const ConstView& input,
                   ReduceOp op, const RankBlocks& blocks) {
  const Placement& placement = collective.placement();
  const std::size_t element = size_of(input.dtype);
  Reducer reducer(collective, input.dtype, op);
  const HostAlgorithm algorithm =
      collective.plan().find(reducer.traffic(OpKind::reduce_scatter, blocks.total()));
  if (algorithm != HostAlgorithm::one_shot) {  // an all_reduce, of which it keeps its own block
    const View all(collective.scratch(blocks.total(), input.dtype), blocks.total(), input.dtype);
    if (!reduce_for_all(collective, reducer, algorithm, all, input)) return false;
    copy_bytes(bytes_of(output), bytes_of(all) + blocks.offset(placement.rank()) * element,
               output.bytes());
    return true;
  }
  ConstView ordered = input;
  if (!placement.in_order()) {
    std::byte* const copied = collective.scratch(blocks.total(), input.dtype);
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
    if (!reducer.reduce_here(ordered.slice(area.first, area.count), shares, values)) return false;
    exchange.given.push_back(std::move(values));
    exchange.counts.push_back(shares[place]);
  }
  const std::vector<std::size_t> shares = shares_on(placement, placement.host(), blocks, element);
  const std::vector<std::size_t> own_blocks = blocks.counts_on(placement.host());
  const bool is_own = shares == own_blocks;
  exchange.result = is_own ? bytes_of(output) : collective.scratch(shares[place], input.dtype);
  if (placement.is_lane() && !exchange_parts(collective, reducer, exchange)) return false;
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
    return View(collective.scratch(count, op.input.dtype), count, op.input.dtype);
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
  const auto reduce_segment = [&](Range segment) {
    const HostAlgorithm algorithm =
        collective.plan().find(reducer.traffic(OpKind::all_reduce, segment.count));
    return reduce_for_all(collective, reducer, algorithm,
                          op.output.slice(segment.first, segment.count),
                          op.input.slice(segment.first, segment.count));
  };
  return for_each_segment(collective, op.input.count,
                          segment_of(collective, reducer, op.input.count), reduce_segment);
}

bool run(HostCollective& collective, const Reduce& op) {
  const Placement& placement = collective.placement();
  Reducer reducer(collective, op.input.dtype, op.op);
  const std::size_t element = size_of(op.input.dtype);
  const int root_host = placement.host_of(op.root);
  const auto reduce_segment = [&](Range segment) {
    const std::vector<std::size_t> counts =
        counts_of_lanes(placement, placement.host(), segment.count, element);
    Pointers values;
    if (!reducer.reduce_here(op.input.slice(segment.first, segment.count), counts, values))
      return false;
    const bool is_root = op.root == placement.rank();
    const View output = is_root ? op.output.slice(segment.first, segment.count) : View();
    const std::size_t own = counts[static_cast<std::size_t>(placement.place())];
    std::byte* const result = is_root && collective.is_alone()
                                  ? bytes_of(output)
                                  : collective.scratch(own, op.input.dtype);
    if (placement.is_lane() && !reduce_on(collective, reducer, root_host, values, result, own))
      return false;
    if (placement.host() != root_host || collective.is_alone()) return true;
    return collective.stage(GatherV{output, ConstView(result, own, op.input.dtype), counts,
                                    placement.place_of(op.root)});
  };
  return for_each_segment(collective, op.input.count,
                          segment_of(collective, reducer, op.input.count), reduce_segment);
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
