// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/replay_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "bench/model/replay_ends.h"
#include "bench/model/stats.h"
#include "c10d/error.h"
#include "c10d/op_traits.h"

namespace c10d::bench {
namespace {

// What overlaps more ops than this counts as done: records of jobs have fewer in flight.
constexpr std::size_t kMostInFlight = 256;
constexpr std::size_t kLongestPeriod = 1024;

void refuse_missing(const RecordedGroup& group) {
  std::vector<int> missing;
  std::size_t at = 0;
  for (int rank = 0; rank < group.size; ++rank)
    if (at < group.ranks.size() && group.ranks[at].rank == rank)
      ++at;
    else
      missing.push_back(rank);
  if (missing.empty()) return;
  if (missing.size() > 16) missing.resize(16);
  throw InvalidArgument(fmt::format(
      "group \"{}\" has {} ranks, and the record has no ops of rank {}: give the files of all "
      "processes, or read the job by the process id of its launcher",
      group.name, group.size, fmt::join(missing, ", ")));
}

void refuse_several_hosts(const RecordedGroup& group) {
  std::set<std::string> hosts;
  for (const RecordedRank& rank : group.ranks) hosts.insert(rank.host);
  if (hosts.size() > 1)
    throw InvalidArgument(
        fmt::format("group \"{}\" has ranks on {}: replay runs, and compares clocks, on one host",
                    group.name, fmt::join(hosts, ", ")));
}

void refuse_other_job(const RecordedGroup& group, const RecordedGroup& world) {
  for (std::size_t rank = 0; rank < group.ranks.size(); ++rank)
    if (group.ranks[rank].pid != world.ranks[rank].pid)
      throw InvalidArgument(fmt::format(
          "rank {} is process {} in group \"{}\" and process {} in group \"{}\": replay takes the "
          "record of one job, whose groups have the ranks in one order",
          rank, world.ranks[rank].pid, world.name, group.ranks[rank].pid, group.name));
}

std::uint64_t sum_of(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

// The benchmark's op that makes such calls on so many elements; nothing: why not.
std::optional<BenchOp> bench_op_of(const RecordedOp& op, std::uint64_t elements, std::string& why) {
  const OpTraits& traits = traits_of(op.kind);
  if (op.kind == OpKind::all_to_all_v) {
    why = "the record does not have how much each rank sends to each other one";
    return std::nullopt;
  }
  if (elements == 0 && traits.required != OpBuffer::neither) {
    why = "no elements";
    return std::nullopt;
  }
  for (const OpFacts& facts : op_facts())
    if (facts.kind == op.kind) return facts.op;
  why = "the benchmark has no such op";
  return std::nullopt;
}

// `counts` are those of the ranks.
Case case_of(const RecordedOp& op, BenchOp bench_op, const std::vector<std::uint64_t>& counts,
             Place place) {
  const OpFacts& facts = facts_of(bench_op);
  Case c;
  c.op = bench_op;
  if (bench_op == BenchOp::barrier) return c;
  c.dtype = op.dtype;
  if (is_reduction(op.kind)) c.redop = op.redop;
  if (facts.rooted) c.root = op.root;
  c.place = facts.in_place ? place : Place::out;
  c.shard = op.count;
  if (facts.uneven) c.counts = counts;
  c.bytes = size_of(op.dtype) * (facts.sharded ? sum_of(counts) : op.count);
  return c;
}

// The ops that all ranks of the group have finished, by sequence.
std::vector<ReplayOp> ops_of(const RecordedGroup& group, Place place, ReplayPlan& plan) {
  std::vector<ReplayOp> all;
  std::vector<BySequence> ranks;
  std::uint64_t first = 0, last = std::numeric_limits<std::uint64_t>::max();
  for (const RecordedRank& rank : group.ranks) {
    BySequence ops = finished_of(rank, false);
    if (ops.empty()) return all;
    first = std::max(first, ops.begin()->first);
    last = std::min(last, ops.rbegin()->first);
    ranks.push_back(std::move(ops));
  }
  const std::size_t index = plan.groups.size();
  std::map<std::string, std::size_t> left_out;  // by op and reason
  for (auto at = ranks[0].lower_bound(first); at != ranks[0].end() && at->first <= last; ++at) {
    const RecordedOp& call = *at->second;
    ReplayOp op;
    op.group = index;
    op.call = call;
    std::vector<std::uint64_t> counts;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto found = ranks[rank].find(at->first);
      if (found == ranks[rank].end()) break;  // it failed there
      const RecordedOp& other = *found->second;
      if (!is_same_call(call, other))
        throw InvalidArgument(
            fmt::format("op #{} of group \"{}\": rank 0 recorded {}, rank {} {}: these are not the "
                        "records of one run",
                        at->first, group.name, text_of(call), rank, text_of(other)));
      op.spans.push_back({other.start, other.end});
      op.ready.push_back(other.ready);
      counts.push_back(other.count);
    }
    if (op.spans.size() < ranks.size()) continue;
    std::string why;
    const auto bench_op = bench_op_of(call, sum_of(counts), why);
    if (bench_op && facts_of(*bench_op).rooted && (call.root < 0 || call.root >= group.size))
      throw InvalidArgument(fmt::format("op #{} of group \"{}\": {}: no such root", at->first,
                                        group.name, text_of(call)));
    if (!bench_op) {
      ++left_out[fmt::format("{}: {}", to_string(call.kind), why)];
      continue;
    }
    op.as_case = case_of(call, *bench_op, counts, place);
    all.push_back(std::move(op));
  }
  for (const auto& [what, count] : left_out)
    plan.notes.push_back(
        fmt::format("group \"{}\": {} ops are left out: {}", group.name, count, what));
  return all;
}

std::vector<std::uint64_t> calls_of(const ReplayPlan& plan) {
  std::map<std::tuple<std::size_t, OpKind, DType, ReduceOp::Kind, std::uint64_t, int,
                      std::vector<std::uint64_t>, std::optional<MessageEnd>>,
           std::uint64_t>
      numbers;
  std::vector<std::uint64_t> calls;
  for (const ReplayOp& op : plan.ops)
    calls.push_back(
        numbers
            .try_emplace({op.group, op.call.kind, op.call.dtype, op.call.redop, op.call.count,
                          op.call.root, op.as_case.counts, op.as_case.end},
                         numbers.size())
            .first->second);
  return calls;
}

std::size_t caller_of(const ReplayOp& op) {
  return op.as_case.end ? static_cast<std::size_t>(op.as_case.end->rank()) : 0;
}

double gap_before(const std::vector<ReplayOp>& ops, std::size_t index, std::size_t rank) {
  if (!takes_part(ops[index], rank)) return 0;
  const double start = ops[index].spans[rank].start;
  double free = start;
  std::size_t seen = 0;
  for (std::size_t i = index; i-- > 0 && seen < kMostInFlight;) {
    if (!takes_part(ops[i], rank)) continue;
    const Span& before = ops[i].spans[rank];
    if (seen++ == 0) free = before.start;
    if (before.end > start) continue;
    free = std::max(free, before.end);
    break;
  }
  return std::max(0.0, start - free);
}

// The seconds of [from, to) in which an op ran on the rank, of those in the step before `index`.
double busy_before(const ReplayPlan& plan, std::size_t index, std::size_t rank, double from,
                   double to) {
  std::vector<Span> spans;
  for (std::size_t i = index / plan.ops_per_step * plan.ops_per_step; i < index; ++i) {
    if (!takes_part(plan.ops[i], rank)) continue;
    const Span& span = plan.ops[i].spans[rank];
    spans.push_back({std::clamp(span.start, from, to), std::clamp(span.end, from, to)});
  }
  return covered(std::move(spans));
}

void find_dues(ReplayPlan& plan) {
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    ReplayOp& op = plan.ops[i];
    for (std::size_t rank = 0; rank < op.spans.size(); ++rank) {
      op.due.emplace_back();
      if (!op.ready[rank]) continue;
      std::size_t first = i / plan.ops_per_step * plan.ops_per_step;
      while (!takes_part(plan.ops[first], rank)) ++first;
      const double begin = plan.ops[first].spans[rank].start - plan.ops[first].gaps[rank];
      const double ready = std::max(begin, *op.ready[rank]);
      op.due.back() = {.at = ready - begin,
                       .beside = busy_before(plan, i, rank, begin, ready),
                       .late = std::min(op.gaps[rank], op.spans[rank].start - ready)};
    }
  }
}

// Whether both ends of each message are in the same step.
bool are_whole(const ReplayPlan& plan, std::span<const std::size_t> steps, std::size_t period) {
  for (const std::size_t step : steps) {
    std::set<std::uint64_t> open;
    for (std::size_t i = step; i < step + period; ++i)
      if (const std::uint64_t message = plan.ops[i].message; message != 0)
        if (!open.insert(message).second) open.erase(message);
    if (!open.empty()) return false;
  }
  return true;
}

// Where whole steps begin: behind the longest pause of the rank that continues then, rank 0 in a
// collective, of those places that cut no message in two. None: all do.
std::vector<std::size_t> steps_of(const ReplayPlan& plan, std::span<const std::uint64_t> calls,
                                  const Repetition& found) {
  std::vector<std::pair<double, std::size_t>> phases;
  for (std::size_t i = 0; i < found.period; ++i) {
    std::vector<double> gaps;
    for (std::size_t at = found.first + i; at < found.first + found.count; at += found.period)
      gaps.push_back(plan.ops[at].gaps[caller_of(plan.ops[at])]);
    phases.emplace_back(-median(std::move(gaps)), i);
  }
  std::sort(phases.begin(), phases.end());
  for (const auto& [gap, phase] : phases) {
    std::vector<std::size_t> steps = find_steps(calls, found.first + phase, found.period);
    if (are_whole(plan, steps, found.period)) return steps;
  }
  return {};
}

// Keeps whole steps.
void cut_into_steps(ReplayPlan& plan, std::size_t wanted) {
  const std::vector<std::uint64_t> calls = calls_of(plan);
  const Repetition found = find_repetition(calls, wanted);
  plan.ops_per_step = plan.ops.size();
  if (found.period == 0 && wanted != 0)
    throw InvalidArgument(
        fmt::format("--ops-per-step {}: the {} ops of the record do not come three times in such "
                    "steps",
                    wanted, plan.ops.size()));
  if (found.period == 0) return;
  const std::vector<std::size_t> steps = steps_of(plan, calls, found);
  if (steps.empty()) {
    plan.notes.push_back("messages go from each step to the next one");
    return;
  }
  std::vector<ReplayOp> kept;
  for (const std::size_t step : steps)
    for (std::size_t i = step; i < step + found.period; ++i) kept.push_back(std::move(plan.ops[i]));
  if (const std::size_t others = plan.ops.size() - kept.size(); others > 0)
    plan.notes.push_back(fmt::format("{} ops that belong to no whole step are left out", others));
  plan.ops = std::move(kept);
  plan.ops_per_step = found.period;
  plan.has_steps = true;
}

// With steps each op of a step has buffers of its own; else each case has.
void give_slots(ReplayPlan& plan) {
  plan.slots.clear();
  std::map<std::tuple<CellKey, std::vector<std::uint64_t>, std::optional<MessageEnd>>, std::size_t>
      by_case;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    ReplayOp& op = plan.ops[i];
    op.slot = plan.has_steps
                  ? i % plan.ops_per_step
                  : by_case
                        .try_emplace({key_of(op.as_case), op.as_case.counts, op.as_case.end},
                                     by_case.size())
                        .first->second;
    if (op.slot == plan.slots.size()) plan.slots.push_back(op.as_case);
  }
}

bool have_a_rank_in_common(const ReplayOp& op, const ReplayOp& later) {
  for (std::size_t rank = 0; rank < op.spans.size(); ++rank)
    if (takes_part(op, rank) && takes_part(later, rank)) return true;
  return false;
}

bool in_flight(const ReplayOp& op, const ReplayOp& later) {
  for (std::size_t rank = 0; rank < op.spans.size(); ++rank)
    if (takes_part(op, rank) && takes_part(later, rank) &&
        later.spans[rank].start + kClockError < op.spans[rank].end)
      return true;
  return false;
}

// Which ops were in flight when others started. None stays so beyond its step, or until another op
// takes its buffers.
void find_flights(ReplayPlan& plan) {
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    ReplayOp& op = plan.ops[i];
    const std::size_t step_end = (i / plan.ops_per_step + 1) * plan.ops_per_step;
    const std::size_t end = std::min({plan.ops.size(), step_end, i + kMostInFlight});
    bool others = false;
    std::size_t next = i + 1;
    for (; next < end; ++next) {
      const ReplayOp& later = plan.ops[next];
      if (!have_a_rank_in_common(op, later)) continue;
      if (later.slot == op.slot || !in_flight(op, later)) break;
      others = true;
    }
    op.joined_before.reset();
    if (others) op.joined_before = next;
  }
}

}  // namespace

ReplayPlan plan_replay(const JobRecord& record, Place place, std::size_t ops_per_step) {
  ReplayPlan plan;
  for (const RecordedGroup& group : record.groups) plan.ranks = std::max(plan.ranks, group.size);
  const RecordedGroup* world = nullptr;
  std::vector<ReplayOp> all;
  std::uint64_t messages = 0;
  for (const RecordedGroup& group : record.groups) {
    if (group.size < plan.ranks) {
      plan.notes.push_back(fmt::format("group \"{}\" is left out: it has {} of {} ranks",
                                       group.name, group.size, plan.ranks));
      continue;
    }
    refuse_missing(group);
    refuse_several_hosts(group);
    if (world == nullptr) world = &group;
    refuse_other_job(group, *world);
    std::vector<ReplayOp> ops = ops_of(group, place, plan);
    std::string why;
    std::vector<ReplayOp> ends = messages_of(group, messages, why);
    for (ReplayOp& end : ends) end.group = plan.groups.size();
    if (!why.empty())
      plan.notes.push_back(fmt::format("group \"{}\": messages are left out: {}", group.name, why));
    if (ops.empty() && ends.empty()) continue;
    std::move(ops.begin(), ops.end(), std::back_inserter(all));
    std::move(ends.begin(), ends.end(), std::back_inserter(all));
    plan.groups.push_back(group.name);
  }
  if (all.empty()) {
    const std::string notes =
        plan.notes.empty() ? "" : fmt::format(" ({})", fmt::join(plan.notes, "; "));
    throw InvalidArgument("the record has no op that all of its ranks have finished" + notes);
  }
  plan.ops = in_one_order(std::move(all), plan.ranks);
  for (std::size_t i = 0; i < plan.ops.size(); ++i)
    for (std::size_t rank = 0; rank < plan.ops[i].spans.size(); ++rank)
      plan.ops[i].gaps.push_back(gap_before(plan.ops, i, rank));
  cut_into_steps(plan, ops_per_step);
  find_dues(plan);
  give_slots(plan);
  find_flights(plan);
  return plan;
}

ReplayPlan last_steps(ReplayPlan plan, std::size_t steps) {
  if (steps >= plan.steps()) return plan;
  const std::size_t drop = plan.ops.size() - steps * plan.ops_per_step;
  plan.ops.erase(plan.ops.begin(), plan.ops.begin() + static_cast<std::ptrdiff_t>(drop));
  find_flights(plan);
  return plan;
}

std::optional<double> computed_before(const ReplayPlan& plan, std::size_t index, std::size_t rank,
                                      double seconds) {
  const std::optional<Due>& due = plan.ops[index].due[rank];
  if (!due) return std::nullopt;
  Due last = *due;
  const std::size_t end = (index / plan.ops_per_step + 1) * plan.ops_per_step;
  for (std::size_t i = index + 1; i < end; ++i)
    if (const auto& later = plan.ops[i].due[rank]; later && later->at > last.at) last = *later;
  const double alone = last.at - last.beside;
  const double part = last.beside > 0 ? std::clamp((seconds - alone) / last.beside, 0.0, 1.0) : 1.0;
  return std::min(seconds, due->at - due->beside + part * due->beside);
}

double covered(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.start < b.start; });
  double sum = 0, until = -std::numeric_limits<double>::infinity();
  for (const Span& span : spans) {
    sum += std::max(0.0, span.end - std::max(span.start, until));
    until = std::max(until, span.end);
  }
  return sum;
}

std::vector<double> communication_by_step(const ReplayPlan& plan,
                                          std::span<const std::vector<Span>> spans) {
  std::vector<double> steps;
  for (std::size_t first = 0; first < spans.size(); first += plan.ops_per_step) {
    std::vector<Span> common;
    for (std::size_t i = first; i < first + plan.ops_per_step; ++i) {
      const auto& end = plan.ops[i].as_case.end;
      if (!end || !end->sends) common.push_back(common_span(spans[i]));
    }
    steps.push_back(covered(std::move(common)));
  }
  return steps;
}

std::vector<std::vector<Span>> recorded_spans(const ReplayPlan& plan) {
  std::vector<std::vector<Span>> spans;
  for (const ReplayOp& op : plan.ops) spans.push_back(op.spans);
  return spans;
}

std::vector<std::size_t> find_steps(std::span<const std::uint64_t> calls, std::size_t first,
                                    std::size_t period) {
  const auto step = calls.subspan(first, period);
  std::vector<std::size_t> steps;
  for (std::size_t i = 0; i + period <= calls.size();) {
    const bool is_step = std::equal(step.begin(), step.end(), calls.begin() + static_cast<long>(i));
    if (is_step) steps.push_back(i);
    i += is_step ? period : 1;
  }
  return steps;
}

Repetition find_repetition(std::span<const std::uint64_t> calls, std::size_t wanted) {
  constexpr std::size_t kOneIn = 32;  // of the calls may stand between steps
  const std::size_t longest = wanted != 0 ? wanted : kLongestPeriod;
  for (std::size_t period = std::max<std::size_t>(wanted, 1);
       period <= std::min(longest, calls.size() / 3); ++period) {
    Repetition best{period, 0, 0};
    std::size_t first = 0;  // of those that have come again up to `i`
    for (std::size_t i = 0; i + period <= calls.size(); ++i) {
      if (i + period < calls.size() && calls[i] == calls[i + period]) continue;
      if (const std::size_t count = i + period - first; count > best.count && i > first)
        best = {period, first, count};
      first = i + 1;
    }
    if (best.count < 3 * period) continue;
    const std::vector<std::size_t> steps = find_steps(calls, best.first, period);
    const std::size_t kept = steps.size() * period;
    const std::size_t between = steps.back() + period - steps.front() - kept;
    if (wanted != 0 || (between * kOneIn <= kept && 2 * kept >= calls.size())) return best;
  }
  return {};
}

}  // namespace c10d::bench
