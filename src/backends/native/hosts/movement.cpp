// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/movement.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace c10d { inline namespace v0 { namespace native {

RankBlocks::RankBlocks(const Placement& placement, std::size_t count)
    : placement_(placement), counts_(static_cast<std::size_t>(placement.size()), count) {
  lay_out();
}

RankBlocks::RankBlocks(const Placement& placement, std::span<const std::size_t> counts)
    : placement_(placement), counts_(counts.begin(), counts.end()) {
  lay_out();
}

void RankBlocks::lay_out() {
  offsets_.push_back(0);
  for (const std::size_t count : counts_) offsets_.push_back(offsets_.back() + count);
  host_offsets_.resize(counts_.size());
  std::size_t at = 0;
  for (int host = 0; host < placement_.hosts(); ++host) {
    hosts_.push_back({at, 0});
    for (const int rank : placement_.ranks_of(host)) {
      host_offsets_[static_cast<std::size_t>(rank)] = at;
      at += count(rank);
    }
    hosts_.back().count = at - hosts_.back().first;
  }
}

std::vector<std::size_t> RankBlocks::counts_on(int host) const {
  std::vector<std::size_t> counts;
  for (const int rank : placement_.ranks_of(host)) counts.push_back(count(rank));
  return counts;
}

void RankBlocks::to_hosts(std::byte* to, const std::byte* from, std::size_t element) const {
  for (int rank = 0; rank < placement_.size(); ++rank)
    copy_bytes(to + offset_by_host(rank) * element, from + offset(rank) * element,
               count(rank) * element);
}

void RankBlocks::to_ranks(std::byte* to, const std::byte* from, std::size_t element) const {
  for (int rank = 0; rank < placement_.size(); ++rank)
    copy_bytes(to + offset(rank) * element, from + offset_by_host(rank) * element,
               count(rank) * element);
}

Parts parts_of(const Placement& placement, std::size_t count, DType dtype) {
  if (placement.most_ranks() == 1) return Parts(count);
  return {count, static_cast<std::size_t>(placement.lanes()) * (kPartOfLane / size_of(dtype))};
}

std::vector<std::size_t> counts_of_lanes(const Placement& placement, int host, std::size_t count,
                                         std::size_t element) {
  std::vector<std::size_t> counts;
  for (int place = 0; place < placement.ranks_on(host); ++place)
    counts.push_back(placement.carried_by(place, count, element).count);
  return counts;
}

bool share_lanes(HostCollective& collective, const View& data) {
  const Placement& placement = collective.placement();
  return share(collective, data,
               counts_of_lanes(placement, placement.host(), data.count, size_of(data.dtype)));
}

bool share(HostCollective& collective, const View& data, const std::vector<std::size_t>& counts) {
  if (collective.is_alone() || data.count == 0) return true;
  if (counts[0] == data.count) return collective.stage(Broadcast{data, data, 0});
  const Range own = range_of(counts, collective.placement().place());
  return collective.stage(AllGatherV{data, part_of(data, own), counts});
}

Range range_of(const std::vector<std::size_t>& counts, int place) {
  std::size_t first = 0;
  for (int i = 0; i < place; ++i) first += counts[static_cast<std::size_t>(i)];
  return {first, counts[static_cast<std::size_t>(place)]};
}

namespace {

// The blocks of an op in the order of hosts: in the caller's buffer if that is the order of ranks,
// else in scratch.
class HostOrder {
 public:
  HostOrder(HostCollective& collective, const RankBlocks& blocks, DType dtype)
      : collective_(collective), blocks_(blocks), dtype_(dtype) {}

  View of_output(const View& output) {
    return collective_.placement().in_order() ? output : fresh();
  }
  // Copies there what the buffer holds.
  ConstView of_input(const ConstView& input) {
    if (collective_.placement().in_order()) return input;
    const View copied = fresh();
    blocks_.to_hosts(bytes_of(copied), bytes_of(input), size_of(dtype_));
    return copied;
  }
  // Brings back what was made in of_output().
  void finish(const View& output, const View& ordered) {
    if (output.data != ordered.data)
      blocks_.to_ranks(bytes_of(output), bytes_of(ordered), size_of(dtype_));
  }

 private:
  View fresh() {
    return {collective_.scratch().take(blocks_.total(), dtype_), blocks_.total(), dtype_};
  }

  HostCollective& collective_;
  const RankBlocks& blocks_;
  const DType dtype_;
};

HostTraffic gather_traffic(const Placement& placement, const RankBlocks& blocks,
                           std::size_t element) {
  std::size_t most = 0;
  for (int host = 0; host < placement.hosts(); ++host)
    most = std::max(most, blocks.of_host(host).count);
  return {.op = OpKind::all_gather,
          .hosts = placement.hosts(),
          .lanes = placement.lanes(),
          .inputs = most * element};
}

// Each rank sends its block to its twins, beside what its own host gathers.
bool gather_by_twins(HostCollective& collective, const View& all, const ConstView& input,
                     const RankBlocks& blocks) {
  const Placement& placement = collective.placement();
  const int others = placement.hosts() - 1;
  int arrived = 0;  // blocks of twins, from the host after this one on
  const auto gather = [&] {
    const Range own = blocks.of_host(placement.host());
    if (!collective.stage(AllGatherV{part_of(all, own), input, blocks.counts_on(placement.host())}))
      return false;
    for (int i = 1; i <= others; ++i) {
      const int host = placement.host_after(i);
      if (!collective.await_other([&] { return arrived >= i; }) ||
          !share(collective, part_of(all, blocks.of_host(host)), blocks.counts_on(host)))
        return false;
    }
    return true;
  };
  const auto exchange = [&] {
    for (int i = 1; i <= others; ++i) {
      const int twin = placement.twin(placement.host_after(i));
      const View theirs = part_of(all, {blocks.offset_by_host(twin), blocks.count(twin)});
      collective.send(twin, bytes_of(input), input.bytes());
      collective.receive(twin, bytes_of(theirs), theirs.bytes());
    }
    while (arrived < others) {
      const int twin = placement.twin(placement.host_after(arrived + 1));
      if (!collective.await_blocks(twin, collective.posted(twin))) return false;
      ++arrived;
      collective.give_turn();
    }
    return true;
  };
  return collective.overlap(all.bytes(), exchange, gather);
}

// Every host gathers its own blocks. One rank of it exchanges these with the hosts, or each lane
// its part of them.
bool gather_everywhere(HostCollective& collective, const View& output, const ConstView& input,
                       const RankBlocks& blocks) {
  const Placement& placement = collective.placement();
  HostOrder order(collective, blocks, output.dtype);
  const View all = order.of_output(output);
  const std::size_t element = size_of(output.dtype);
  const auto of_hosts = [&](int first, int count) {
    const std::size_t from = blocks.of_host(first).first;
    const Range last = blocks.of_host(first + count - 1);
    return part_of(all, {from, last.first + last.count - from});
  };
  const auto of_host = [&](int host) { return of_hosts(host, 1); };
  const View own = of_host(placement.host());
  const HostAlgorithm algorithm =
      collective.plan().find(gather_traffic(placement, blocks, element));
  const bool by_lanes = algorithm == HostAlgorithm::one_shot;
  if (by_lanes && placement.all_are_lanes() && blocks.are_equal() &&
      collective.overlaps_bytes(all.bytes())) {
    if (!gather_by_twins(collective, all, input, blocks)) return false;
    order.finish(output, all);
    return true;
  }
  if (!collective.stage(AllGatherV{own, input, blocks.counts_on(placement.host())})) return false;
  const auto carried = [&](int first, int count) {
    View theirs = of_hosts(first, count);
    if (by_lanes)
      theirs = part_of(theirs, placement.carried_by(placement.place(), theirs.count, element));
    return std::span(bytes_of(theirs), theirs.bytes());
  };
  if (by_lanes ? placement.is_lane() : placement.place() == 0) {
    const HostSchedule schedule(algorithm, OpKind::all_gather, placement.hosts());
    if (!collective.pass(schedule, carried, carried)) return false;
  }
  if (by_lanes) {
    for (int host = 0; host < placement.hosts(); ++host)
      if (host != placement.host() && !share_lanes(collective, of_host(host))) return false;
  } else if (!collective.is_alone() && all.count != 0) {
    if (!collective.stage(Broadcast{all, all, 0})) return false;
  }
  order.finish(output, all);
  return true;
}

// A stage beside the blocks that are posted, of so many bytes.
bool beside_blocks(HostCollective& collective, std::size_t bytes,
                   const HostCollective::Step& stage) {
  return collective.overlap(
      bytes, [&] { return collective.finish_blocks(); }, stage);
}

// Each rank sends its block to the root.
bool gather_to_root(HostCollective& collective, const View& output, const ConstView& input,
                    int root, const RankBlocks& blocks) {
  const Placement& placement = collective.placement();
  if (placement.host_of(root) != placement.host()) {
    collective.send(root, bytes_of(input), input.bytes());
    return collective.finish_blocks();
  }
  const bool is_root = root == placement.rank();
  const std::size_t element = size_of(input.dtype);
  HostOrder order(collective, blocks, input.dtype);
  const View all = is_root ? order.of_output(output) : output;
  if (is_root) {
    for (int rank = 0; rank < placement.size(); ++rank)
      if (placement.host_of(rank) != placement.host())
        collective.receive(rank, bytes_of(all) + blocks.offset_by_host(rank) * element,
                           blocks.count(rank) * element);
  }
  const View own = is_root ? part_of(all, blocks.of_host(placement.host())) : output;
  const auto gather_here = [&] {
    return collective.stage(
        GatherV{own, input, blocks.counts_on(placement.host()), placement.place_of(root)});
  };
  if (!beside_blocks(collective, is_root ? all.bytes() : 0, gather_here)) return false;
  if (is_root) order.finish(output, all);
  return true;
}

// The root sends each rank its block.
bool scatter_from_root(HostCollective& collective, const View& output, const ConstView& input,
                       int root, const RankBlocks& blocks) {
  const Placement& placement = collective.placement();
  if (placement.host_of(root) != placement.host()) {
    collective.receive(root, bytes_of(output), output.bytes());
    return collective.finish_blocks();
  }
  const bool is_root = root == placement.rank();
  const std::size_t element = size_of(output.dtype);
  HostOrder order(collective, blocks, output.dtype);
  const ConstView all = is_root ? order.of_input(input) : input;
  if (is_root) {
    for (int rank = 0; rank < placement.size(); ++rank)
      if (placement.host_of(rank) != placement.host())
        collective.send(rank, bytes_of(input) + blocks.offset(rank) * element,
                        blocks.count(rank) * element);
  }
  const ConstView own = is_root ? part_of(all, blocks.of_host(placement.host())) : input;
  return beside_blocks(collective, is_root ? all.bytes() : 0, [&] {
    return collective.stage(
        ScatterV{output, own, blocks.counts_on(placement.host()), placement.place_of(root)});
  });
}

// The blocks between ranks of this host.
bool exchange_here(HostCollective& collective, const View& output, const ConstView& input,
                   const RankBlocks& to, const RankBlocks& from) {
  const Placement& placement = collective.placement();
  const std::size_t element = size_of(input.dtype);
  const std::vector<std::size_t> taken = from.counts_on(placement.host());
  const std::vector<std::size_t> given = to.counts_on(placement.host());
  if (placement.in_order())
    return collective.stage(AllToAllV{part_of(output, from.of_host(placement.host())),
                                      part_of(input, to.of_host(placement.host())), taken, given});
  const auto fresh = [&](std::size_t count) {
    return View(collective.scratch().take(count, input.dtype), count, input.dtype);
  };
  const View own_given = fresh(to.of_host(placement.host()).count);
  const View own_taken = fresh(from.of_host(placement.host()).count);
  const auto for_each = [&](const RankBlocks& blocks, const View& packed, auto use) {
    std::byte* at = bytes_of(packed);
    for (const int rank : placement.neighbours()) {
      use(at, blocks.offset(rank) * element, blocks.count(rank) * element);
      at += blocks.count(rank) * element;
    }
  };
  for_each(to, own_given, [&](std::byte* at, std::size_t offset, std::size_t bytes) {
    copy_bytes(at, bytes_of(input) + offset, bytes);
  });
  if (!collective.stage(AllToAllV{own_taken, own_given, taken, given})) return false;
  for_each(from, own_taken, [&](std::byte* at, std::size_t offset, std::size_t bytes) {
    copy_bytes(bytes_of(output) + offset, at, bytes);
  });
  return true;
}

// Each rank sends each rank on another host its block.
bool exchange_all(HostCollective& collective, const View& output, const ConstView& input,
                  const RankBlocks& to, const RankBlocks& from) {
  const Placement& placement = collective.placement();
  const std::size_t element = size_of(input.dtype);
  for (int i = 1; i < placement.hosts(); ++i) {
    for (const int rank : placement.ranks_of(placement.host_after(i))) {
      collective.send(rank, bytes_of(input) + to.offset(rank) * element, to.count(rank) * element);
      collective.receive(rank, bytes_of(output) + from.offset(rank) * element,
                         from.count(rank) * element);
    }
  }
  return beside_blocks(collective, input.bytes() + output.bytes(),
                       [&] { return exchange_here(collective, output, input, to, from); });
}

// A lane's part, chunk by chunk down the tree, or along the chain.
bool pass_down(HostCollective& collective, HostAlgorithm algorithm, int root_host,
               const View& data) {
  const Placement& placement = collective.placement();
  const HostSchedule schedule(algorithm, OpKind::broadcast, placement.hosts(), root_host);
  int parent = -1;
  std::vector<int> children;
  for (int round = 0; round < schedule.rounds(); ++round)
    schedule.for_each(placement.host(), round, [&](const HostMessage& message) {
      const int peer = placement.twin(message.peer);
      message.sent ? children.push_back(peer) : static_cast<void>(parent = peer);
    });
  const std::size_t bytes = data.bytes();
  const auto chunk_of = [&](std::size_t at) { return std::min(Stream::kChunkBytes, bytes - at); };
  HostCollective::Posted arrived;
  if (parent >= 0) {
    arrived.receives = collective.posted(parent).receives;
    for (std::size_t at = 0; at < bytes; at += Stream::kChunkBytes)
      collective.receive(parent, bytes_of(data) + at, chunk_of(at));
  }
  for (std::size_t at = 0; at < bytes; at += Stream::kChunkBytes) {
    ++arrived.receives;
    if (parent >= 0 && !collective.await_blocks(parent, arrived)) return false;
    for (const int child : children) collective.send(child, bytes_of(data) + at, chunk_of(at));
  }
  return collective.finish_blocks();
}

}  // namespace

bool run(HostCollective& collective, const Broadcast& op) {
  const Placement& placement = collective.placement();
  const int root_host = placement.host_of(op.root);
  const bool is_root_host = placement.host() == root_host, is_root = placement.rank() == op.root;
  const Parts many = parts_of(placement, op.output.count, op.output.dtype);
  const Parts parts = collective.overlaps_parts(many.count()) ? many : Parts(op.output.count);
  const HostAlgorithm algorithm = collective.plan().find({.op = OpKind::broadcast,
                                                          .hosts = placement.hosts(),
                                                          .lanes = placement.lanes(),
                                                          .inputs = op.output.bytes()});
  const auto share_input = [&](std::size_t part, Scratch&) {
    const View output = part_of(op.output, parts[part]);
    const ConstView input = is_root ? part_of(op.input, parts[part]) : output;
    return !is_root_host || collective.stage(Broadcast{output, input, placement.place_of(op.root)});
  };
  const auto pass = [&](std::size_t part, Scratch&) {
    const View data = part_of(op.output, parts[part]);
    const Range own = placement.carried_by(placement.place(), data.count, size_of(data.dtype));
    return !placement.is_lane() || pass_down(collective, algorithm, root_host, part_of(data, own));
  };
  const auto share_output = [&](std::size_t part) {
    return is_root_host || share_lanes(collective, part_of(op.output, parts[part]));
  };
  return collective.run_parts(parts.count(), {share_input, pass, share_output});
}

bool run(HostCollective& collective, const AllGather& op) {
  return gather_everywhere(collective, op.output, op.input,
                           {collective.placement(), op.input.count});
}
bool run(HostCollective& collective, const AllGatherV& op) {
  return gather_everywhere(collective, op.output, op.input, {collective.placement(), op.counts});
}

bool run(HostCollective& collective, const Gather& op) {
  return gather_to_root(collective, op.output, op.input, op.root,
                        {collective.placement(), op.input.count});
}
bool run(HostCollective& collective, const GatherV& op) {
  return gather_to_root(collective, op.output, op.input, op.root,
                        {collective.placement(), op.counts});
}

bool run(HostCollective& collective, const Scatter& op) {
  return scatter_from_root(collective, op.output, op.input, op.root,
                           {collective.placement(), op.output.count});
}
bool run(HostCollective& collective, const ScatterV& op) {
  return scatter_from_root(collective, op.output, op.input, op.root,
                           {collective.placement(), op.counts});
}

bool run(HostCollective& collective, const AllToAll& op) {
  const RankBlocks blocks(collective.placement(),
                          op.input.count / static_cast<std::size_t>(collective.placement().size()));
  return exchange_all(collective, op.output, op.input, blocks, blocks);
}
bool run(HostCollective& collective, const AllToAllV& op) {
  return exchange_all(collective, op.output, op.input, {collective.placement(), op.input_counts},
                      {collective.placement(), op.output_counts});
}

}}}  // namespace c10d::v0::native
