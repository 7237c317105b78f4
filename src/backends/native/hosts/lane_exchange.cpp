// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/lane_exchange.h"

#include <algorithm>
#include <array>
#include <span>

namespace c10d { inline namespace v0 { namespace native {
namespace {

// Chunks under way before the first of them is reduced.
constexpr std::size_t kAhead = 2;

// The steps of an exchange, each over one chunk of what each host ends: the values go out and come
// in, and kAhead steps later they are reduced, and the results go out. All lanes of this place go
// through the same steps, so both ends of a connection know the order of its blocks.
class ExchangeSteps {
 public:
  ExchangeSteps(HostCollective& collective, Scratch& scratch, const Reducer& reducer,
                const LaneExchange& exchange)
      : collective_(collective),
        placement_(collective.placement()),
        reducer_(reducer),
        exchange_(exchange),
        schedule_(exchange.results.empty() ? HostAlgorithm::one_shot : HostAlgorithm::two_shot,
                  OpKind::reduce_scatter, placement_.hosts()),
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
          slot.got[i] = scratch.take(std::min(own, chunk_), reducer_.type());
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

  void pass_values(std::size_t step) {
    const std::size_t element = size_of(reducer_.type());
    const Range own = part_of(placement_.host(), step);
    schedule_.for_each(placement_.host(), 0, [&](const HostMessage& message) {
      const int host = message.peer, twin = placement_.twin(host);
      if (message.sent) {
        const Range theirs = part_of(host, step);
        for (const std::byte* const value : exchange_.given[index(host)])
          collective_.send(twin, value + theirs.first * element, theirs.count * element);
      } else {
        for (const std::size_t i : reducer_.sums().of(host))
          collective_.receive(twin, slot_of(step).got[i], own.count * element);
      }
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
    if (schedule_.rounds() == 1) return true;
    const std::size_t element = size_of(reducer_.dtype());
    schedule_.for_each(placement_.host(), 1, [&](const HostMessage& message) {
      const int host = message.peer;
      const Range theirs = part_of(host, step);
      if (message.sent)
        collective_.send(placement_.twin(host), result, own.count * element);
      else
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
  const LaneExchange& exchange_;
  const HostSchedule schedule_;
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

// Every lane of this place gets the values of all others, and finishes everything.
bool finish_everywhere(HostCollective& collective, Scratch& scratch, const Reducer& reducer,
                       HostAlgorithm algorithm, const Pointers& values, std::byte* out,
                       std::size_t count) {
  const Placement& placement = collective.placement();
  const PartialSums::Values& sums = reducer.sums();
  const HostSchedule schedule(algorithm, OpKind::all_reduce, placement.hosts());
  const std::size_t bytes = count * size_of(reducer.type());
  const auto before = [&](int host) { return sums.before[static_cast<std::size_t>(host)]; };
  std::byte* const gathered = scratch.take(bytes * sums.all.size());  // host after host
  const std::size_t first_own = before(placement.host());
  const bool as_it_lies = values.size() == 1 && schedule.rounds() == 1;
  if (!as_it_lies)
    for (std::size_t i = 0; i < values.size(); ++i)
      copy_bytes(gathered + (first_own + i) * bytes, values[i], bytes);
  const auto in = [&](int first, int hosts) {
    return std::span(gathered + before(first) * bytes,
                     (before(first + hosts) - before(first)) * bytes);
  };
  const auto out_of = [&](int first, int hosts) {
    return as_it_lies ? std::span(values[0], bytes) : std::span<const std::byte>(in(first, hosts));
  };
  if (!collective.pass(schedule, out_of, in)) return false;
  Pointers all(sums.all.size());
  for (int host = 0; host < placement.hosts(); ++host)
    for (std::size_t i = 0; i < sums.of(host).size(); ++i)
      all[sums.of(host)[i]] = gathered + (before(host) + i) * bytes;
  if (as_it_lies) all[sums.of(placement.host())[0]] = values[0];
  reducer.finish(out, all, count);
  return true;
}

// The only value of each host, halved with a host at distance 1, 2, 4, ..., and the results doubled
// in the other order.
class Halving {
 public:
  Halving(HostCollective& collective, Scratch& scratch, const Reducer& reducer, std::byte* out,
          std::size_t count)
      : collective_(collective),
        scratch_(scratch),
        placement_(collective.placement()),
        reducer_(reducer),
        schedule_(HostAlgorithm::halving, OpKind::all_reduce, placement_.hosts()),
        least_(std::min(size_of(reducer.type()), size_of(reducer.dtype()))),
        out_(out),
        held_{nullptr, reducer.type(), {0, count}},
        count_(count) {}

  bool run(const std::byte* value) {
    held_.data = value;
    const int halvings = schedule_.rounds() / 2;
    for (int round = 0; round < halvings; ++round)
      if (!halve(round, round + 1 == halvings)) return false;
    const std::size_t element = size_of(reducer_.dtype());
    for (int round = halvings; round < schedule_.rounds(); ++round) {
      const Pair pair = pair_of(round);
      const Range given = range_of(pair.out.parts), taken = range_of(pair.in.parts);
      collective_.send(pair.twin, out_ + given.first * element, given.count * element);
      collective_.receive(pair.twin, out_ + taken.first * element, taken.count * element);
      if (!collective_.finish_blocks()) return false;
    }
    return true;
  }

 private:
  struct Pair {
    int twin;
    HostMessage out, in;
  };
  struct Held {
    const std::byte* data;
    DType type;
    Range range;
  };

  Pair pair_of(int round) const {
    Pair pair{};
    schedule_.for_each(placement_.host(), round, [&](const HostMessage& message) {
      pair.twin = placement_.twin(message.peer);
      (message.sent ? pair.out : pair.in) = message;
    });
    return pair;
  }
  Range range_of(HostArc parts) const noexcept {
    const Range first = elements_of(count_, least_, placement_.hosts(), parts.first);
    const Range last =
        elements_of(count_, least_, placement_.hosts(), parts.first + parts.count - 1);
    return {first.first, last.first + last.count - first.first};
  }

  // Chunk by chunk: one is reduced while the next ones come. It does not matter which of two sums
  // comes first.
  bool halve(int round, bool ends) {
    const Pair pair = pair_of(round);
    const Range given = range_of(pair.out.parts), kept = range_of(pair.in.parts);
    const std::size_t element = size_of(held_.type);
    const std::size_t sum = size_of(ends ? reducer_.dtype() : reducer_.sum_type());
    const std::size_t chunk = Stream::kChunkBytes / std::max(element, sum);
    std::byte* const got = scratch_.take(kept.count * element);
    std::byte* const to = ends             ? out_ + kept.first * sum
                          : sum == element ? got
                                           : scratch_.take(kept.count * sum);
    const std::byte* const own = held_.data + (kept.first - held_.range.first) * element;
    const std::byte* const theirs = held_.data + (given.first - held_.range.first) * element;
    const auto part_of = [&](Range range, std::size_t at) {
      return std::min(chunk, range.count - std::min(at, range.count)) * element;
    };
    HostCollective::Posted arrived{0, collective_.posted(pair.twin).receives};
    for (std::size_t at = 0; at < std::max(given.count, kept.count); at += chunk) {
      collective_.send(pair.twin, theirs + at * element, part_of(given, at));
      collective_.receive(pair.twin, got + at * element, part_of(kept, at));
    }
    for (std::size_t at = 0; at < kept.count; at += chunk) {
      ++arrived.receives;
      if (!collective_.await_blocks(pair.twin, arrived)) return false;
      const std::array in{own + at * element, static_cast<const std::byte*>(got + at * element)};
      const std::size_t count = std::min(chunk, kept.count - at);
      if (ends)
        reducer_.finish_sums(to + at * sum, in, count);
      else if (round == 0)
        reducer_.add_values(to + at * sum, in, count);
      else
        reducer_.add_sums(to + at * sum, in, count);
    }
    held_ = {to, reducer_.sum_type(), kept};
    return collective_.finish_blocks();
  }

  HostCollective& collective_;
  Scratch& scratch_;
  const Placement& placement_;
  const Reducer& reducer_;
  const HostSchedule schedule_;
  const std::size_t least_;  // bytes of an element that travels
  std::byte* const out_;
  Held held_;
  const std::size_t count_;
};

}  // namespace

bool exchange_parts(HostCollective& collective, Scratch& scratch, const Reducer& reducer,
                    const LaneExchange& exchange) {
  return ExchangeSteps(collective, scratch, reducer, exchange).run();
}

bool reduce_everywhere(HostCollective& collective, Scratch& scratch, const Reducer& reducer,
                       HostAlgorithm algorithm, const Pointers& values, std::byte* out,
                       std::size_t count) {
  if (algorithm == HostAlgorithm::halving)
    return Halving(collective, scratch, reducer, out, count).run(values[0]);
  if (algorithm != HostAlgorithm::two_shot)
    return finish_everywhere(collective, scratch, reducer, algorithm, values, out, count);
  const int hosts = collective.placement().hosts();
  const std::size_t in = size_of(reducer.type()), result = size_of(reducer.dtype());
  LaneExchange exchange;
  for (int host = 0; host < hosts; ++host) {
    const Range part = elements_of(count, std::min(in, result), hosts, host);
    exchange.given.push_back(moved_by(values, part.first * in));
    exchange.counts.push_back(part.count);
    std::byte* const to = out + part.first * result;
    if (host == collective.host()) exchange.result = to;
    exchange.results.push_back(to);
  }
  return exchange_parts(collective, scratch, reducer, exchange);
}

}}}  // namespace c10d::v0::native
