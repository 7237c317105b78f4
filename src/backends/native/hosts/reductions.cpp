// SPDX-License-Identifier: BSD-3-Clause
// Reductions over hosts. Each host reduces the inputs of its own ranks as far as the tree over the
// ranks allows (PartialSums), its lanes send these values to the hosts that end the tree, and the
// results go on from there.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "kernels/reduce.h"
#include "src/backends/common/prefix_reduction.h"
#include "src/backends/native/hosts/movement.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// Up to so many bytes every host ends the tree for itself: one way between hosts, not two.
constexpr std::size_t kSmall = std::size_t{4} << 10;
constexpr std::size_t kSmallOfTwo = std::size_t{256} << 10;
// What a lane carries of a reduction at a time, where ranks of its host reduce first.
constexpr std::size_t kSegment = std::size_t{1} << 20;
// Chunks under way before the first of them is reduced.
constexpr std::size_t kAhead = 2;

using Pointers = std::vector<const std::byte*>;  // to the values of a host, or of all

// One reduction, as all its stages know it.
class Reducer {
 public:
  Reducer(HostCollective& collective, DType dtype, ReduceOp op)
      : collective_(collective),
        how_{dtype, op},
        sums_(collective.partial_sums().values(dtype, op.kind)),
        type_(sums_.inputs ? dtype : partial_type(dtype, op.kind)) {}

  DType dtype() const noexcept { return how_.dtype; }
  // Of the values that travel.
  DType type() const noexcept { return type_; }
  const PartialSums::Values& sums() const noexcept { return sums_; }

  // The values of this host, of the parts of `input` that its lanes carry: this rank gets those of
  // its own part, by place in `counts`, which come one after the other and make up all of it. They
  // may be the input itself.
  bool reduce_here(const ConstView& input, const std::vector<std::size_t>& counts,
                   Pointers& values);
  // The result of `count` elements out of the values of all hosts.
  void finish(std::byte* out, std::span<const std::byte* const> values, std::size_t count) const;

 private:
  ReduceOp without_end() const noexcept {
    return how_.op.kind == ReduceOp::avg ? ReduceOp(ReduceOp::sum) : how_.op;
  }
  bool is_reduced_by_team() const noexcept {  // the ranks' own op gives the value
    return !sums_.inputs && sums_.of(collective_.host()).size() == 1 && type_ == how_.dtype;
  }

  HostCollective& collective_;
  const Reducing how_;
  const PartialSums::Values& sums_;
  const DType type_;
};

bool Reducer::reduce_here(const ConstView& input, const std::vector<std::size_t>& counts,
                          Pointers& values) {
  const std::size_t count = counts[static_cast<std::size_t>(collective_.placement().place())];
  const bool changes = how_.op.kind == ReduceOp::premul_sum || type_ != how_.dtype;
  if (collective_.is_alone() && (sums_.inputs || !changes)) {
    values = {bytes_of(input)};
    return true;
  }
  if (is_reduced_by_team()) {
    std::byte* const value = collective_.scratch(count, type_);
    values = {value};
    return collective_.stage(
        ReduceScatterV{View(value, count, type_), input, counts, without_end()});
  }
  const std::size_t ranks = counts.size();
  std::byte* const inputs = collective_.scratch(ranks * count, how_.dtype);
  const std::vector<std::size_t> taken(ranks, count);
  if (!collective_.stage(AllToAllV{View(inputs, ranks * count, how_.dtype), input, taken, counts}))
    return false;
  values.clear();
  std::vector<const std::byte*> some;
  for (const std::size_t index : sums_.of(collective_.host())) {
    const PartialSums::Value& value = sums_.all[index];
    some.clear();
    for (std::size_t i = 0; i < value.ranks; ++i)
      some.push_back(inputs +
                     (static_cast<std::size_t>(value.place) + i) * count * size_of(how_.dtype));
    if (sums_.inputs) {
      values.push_back(some.front());
      continue;
    }
    std::byte* const partial = collective_.scratch(count, type_);
    values.push_back(partial);
    if (count != 0) reduce_partial(how_.dtype, how_.op, partial, some, count);
  }
  return true;
}

void Reducer::finish(std::byte* out, std::span<const std::byte* const> values,
                     std::size_t count) const {
  if (count == 0) return;
  const bool has_order = PartialSums::has_order(how_.dtype, how_.op.kind);
  if (sums_.inputs || !has_order)
    reduce(how_.dtype, how_.op, out, values, count);
  else
    reduce_end(how_.dtype, how_.op, out, values, sums_.ranks, count);
}

// What one lane sends and gets: `given` by host, the values of this host of what that one ends;
// `counts` by host, how many elements that is; `result`, where those go that this host ends. With
// `results`, by host, every host gets the results of all others, too.
struct Exchange {
  std::vector<Pointers> given;
  std::vector<std::size_t> counts;
  std::byte* result = nullptr;
  std::vector<std::byte*> results;
};

// The steps of an exchange, each over one chunk of what each host ends: the values go out and come
// in, and kAhead steps later they are reduced, and the results go out. All lanes of this place go
// through the same steps, so both ends of a connection know the order of its blocks.
class ExchangeSteps {
 public:
  ExchangeSteps(HostCollective& collective, const Reducer& reducer, const Exchange& exchange)
      : collective_(collective),
        placement_(collective.placement()),
        reducer_(reducer),
        exchange_(exchange),
        chunk_(Stream::kChunkBytes / std::max(size_of(reducer.type()), size_of(reducer.dtype()))) {
    const std::size_t most = *std::ranges::max_element(exchange.counts);
    steps_ = (most + chunk_ - 1) / chunk_;
    const std::size_t own = exchange_.counts[index(placement_.host())];
    values_.resize(reducer_.sums().all.size());
    for (Slot& slot : slots_) {
      slot.marks.resize(index(placement_.hosts()));
      slot.got.resize(values_.size());
      for (std::size_t i = 0; i < values_.size(); ++i)
        if (reducer_.sums().all[i].host != placement_.host())
          slot.got[i] = collective_.scratch(std::min(own, chunk_), reducer_.type());
    }
  }

  bool run() {
    for (std::size_t step = 0; step < steps_ + kAhead; ++step) {
      if (step < steps_) pass_values(step);
      if (step >= kAhead && !pass_results(step - kAhead)) return false;
    }
    return collective_.finish_blocks();
  }

 private:
  struct Slot {
    std::vector<HostCollective::Posted> marks;  // by host
    std::vector<std::byte*> got;                // by value; null: of this host
  };
  static std::size_t index(int host) noexcept { return static_cast<std::size_t>(host); }
  Slot& slot_of(std::size_t step) noexcept { return slots_[step % slots_.size()]; }
  Range part_of(int host, std::size_t step) const noexcept {
    const std::size_t total = exchange_.counts[index(host)];
    const std::size_t first = std::min(total, step * chunk_);
    return {first, std::min(chunk_, total - first)};
  }
  // Ranks start at different hosts.
  template <class Use>
  void for_each_other(Use use) const {
    for (int i = 1; i < placement_.hosts(); ++i) use(placement_.host_after(i));
  }

  void pass_values(std::size_t step) {
    const std::size_t element = size_of(reducer_.type());
    const Range own = part_of(placement_.host(), step);
    for_each_other([&](int host) {
      const int twin = placement_.twin(host);
      const Range theirs = part_of(host, step);
      for (const std::byte* const value : exchange_.given[index(host)])
        collective_.send(twin, value + theirs.first * element, theirs.count * element);
      for (const std::size_t i : reducer_.sums().of(host))
        collective_.receive(twin, slot_of(step).got[i], own.count * element);
      slot_of(step).marks[index(host)] = collective_.posted(twin);
    });
  }

  bool pass_results(std::size_t step) {
    const Range own = part_of(placement_.host(), step);
    std::byte* const result = exchange_.result + own.first * size_of(reducer_.dtype());
    if (own.count != 0) {
      // What was sent may lie where the result goes.
      for (int host = 0; host < placement_.hosts(); ++host)
        if (host != placement_.host() &&
            !collective_.await_blocks(placement_.twin(host), slot_of(step).marks[index(host)]))
          return false;
      reduce(step, own, result);
    }
    if (exchange_.results.empty()) return true;
    const std::size_t element = size_of(reducer_.dtype());
    for_each_other([&](int host) {
      const Range theirs = part_of(host, step);
      collective_.send(placement_.twin(host), result, own.count * element);
      collective_.receive(placement_.twin(host),
                          exchange_.results[index(host)] + theirs.first * element,
                          theirs.count * element);
    });
    return true;
  }

  void reduce(std::size_t step, Range own, std::byte* result) {
    std::size_t mine = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const std::byte* const got = slot_of(step).got[i];
      values_[i] = got != nullptr ? got
                                  : exchange_.given[index(placement_.host())][mine++] +
                                        own.first * size_of(reducer_.type());
    }
    reducer_.finish(result, values_, own.count);
  }

  HostCollective& collective_;
  const Placement& placement_;
  const Reducer& reducer_;
  const Exchange& exchange_;
  const std::size_t chunk_;  // elements
  std::size_t steps_;
  std::array<Slot, kAhead + 1> slots_;
  Pointers values_;
};

Pointers moved_by(const Pointers& values, std::size_t bytes) {
  Pointers moved;
  for (const std::byte* const value : values) moved.push_back(value + bytes);
  return moved;
}

// Every lane of this place sends what it has to all others, and finishes everything, in one step.
bool finish_everywhere(HostCollective& collective, const Reducer& reducer, const Pointers& values,
                       std::byte* out, std::size_t count) {
  const Placement& placement = collective.placement();
  const PartialSums::Values& sums = reducer.sums();
  const std::size_t bytes = count * size_of(reducer.type());
  Pointers all(sums.all.size());
  for (int i = 1; i < placement.hosts(); ++i) {
    const int host = placement.host_after(i), twin = placement.twin(host);
    for (const std::byte* const value : values) collective.send(twin, value, bytes);
    for (const std::size_t index : sums.of(host)) {
      std::byte* const got = collective.scratch(bytes);
      collective.receive(twin, got, bytes);
      all[index] = got;
    }
  }
  const auto own = sums.of(placement.host());
  for (std::size_t i = 0; i < own.size(); ++i) all[own[i]] = values[i];
  if (!collective.finish_blocks()) return false;
  reducer.finish(out, all, count);
  return true;
}

// A lane reduces `count` elements, of which its host has `values`, so that all lanes of this place
// have the results.
bool reduce_everywhere(HostCollective& collective, const Reducer& reducer, const Pointers& values,
                       std::byte* out, std::size_t count) {
  const int hosts = collective.placement().hosts();
  const std::size_t in = size_of(reducer.type()), result = size_of(reducer.dtype());
  // Two hosts send as much either way, until it takes longer to reduce all of it.
  const bool sends_as_much = hosts == 2 && reducer.sums().most == 1 && in == result;
  if (count * in <= (sends_as_much ? kSmallOfTwo : kSmall))
    return finish_everywhere(collective, reducer, values, out, count);
  Exchange exchange;
  for (int host = 0; host < hosts; ++host) {
    const Range part = elements_of(count, std::min(in, result), hosts, host);
    exchange.given.push_back(moved_by(values, part.first * in));
    exchange.counts.push_back(part.count);
    std::byte* const to = out + part.first * result;
    if (host == collective.host()) exchange.result = to;
    exchange.results.push_back(to);
  }
  return ExchangeSteps(collective, reducer, exchange).run();
}

// The same, so that the lane on `ending` has them.
bool reduce_on(HostCollective& collective, const Reducer& reducer, int ending,
               const Pointers& values, std::byte* out, std::size_t count) {
  Exchange exchange;
  for (int host = 0; host < collective.placement().hosts(); ++host) {
    exchange.given.push_back(values);
    exchange.counts.push_back(host == ending ? count : 0);
  }
  exchange.result = out;
  return ExchangeSteps(collective, reducer, exchange).run();
}

// Elements of a reduction that the lanes of a host carry at a time: all where no rank reduces
// first.
std::size_t segment_of(const HostCollective& collective, const Reducer& reducer,
                       std::size_t count) {
  std::size_t most_ranks = 1;
  for (int host = 0; host < collective.placement().hosts(); ++host)
    most_ranks = std::max(most_ranks, collective.placement().ranks_of(host).size());
  const auto lanes = static_cast<std::size_t>(collective.placement().lanes());
  return most_ranks == 1 ? count : lanes * (kSegment / size_of(reducer.dtype()));
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
  ConstView ordered = input;
  if (!placement.in_order()) {
    std::byte* const copied = collective.scratch(blocks.total(), input.dtype);
    blocks.to_hosts(copied, bytes_of(input), element);
    ordered = ConstView(copied, blocks.total(), input.dtype);
  }
  const auto place = static_cast<std::size_t>(placement.place());
  const auto lanes = static_cast<std::size_t>(placement.lanes());
  const std::size_t ranks = placement.neighbours().size();
  Exchange exchange;
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
  if (placement.is_lane() && !ExchangeSteps(collective, reducer, exchange).run()) return false;
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
  const Placement& placement = collective.placement();
  Reducer reducer(collective, op.input.dtype, op.op);
  const std::size_t element = size_of(op.input.dtype);
  const auto reduce_segment = [&](Range segment) {
    const View output = op.output.slice(segment.first, segment.count);
    const std::vector<std::size_t> counts =
        counts_of_lanes(placement, placement.host(), segment.count, element);
    Pointers values;
    if (!reducer.reduce_here(op.input.slice(segment.first, segment.count), counts, values))
      return false;
    const Range own = placement.carried_by(placement.place(), segment.count, element);
    if (placement.is_lane() &&
        !reduce_everywhere(collective, reducer, values, bytes_of(output) + own.first * element,
                           own.count))
      return false;
    return share_lanes(collective, output);
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
