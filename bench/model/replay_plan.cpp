// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/replay_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "bench/model/stats.h"
#include "c10d/error.h"
#include "c10d/op_traits.h"

namespace c10d::bench {
namespace {

// What overlaps more ops than this counts as done: records of jobs have fewer in flight.
constexpr std::size_t kMostInFlight = 256;
constexpr std::size_t kLongestPeriod = 1024;
constexpr double kClockError = 2e-6;  // seconds: what two threads' readings may differ by

// One rank's collectives that ended well, by sequence. The record of a job that runs may begin with
// ops that are newer than what follows, or half of them: its ring was read while it was written.
using BySequence = std::map<std::uint64_t, const RecordedOp*>;

BySequence collectives_of(const RecordedRank& rank) {
  BySequence ops;
  const RecordedOp* before = nullptr;
  for (const RecordedOp& op : rank.ops) {
    if (is_point_to_point(op.kind)) continue;
    if (before != nullptr &&
        (op.sequence <= before->sequence || op.start < before->start - kClockError))
      ops.clear();
    before = &op;
    if (op.ok) ops[op.sequence] = &op;
  }
  return ops;
}

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

// The benchmark's op that makes such calls; nothing: why not.
std::optional<BenchOp> bench_op_of(const RecordedOp& op, std::string& why) {
  const OpTraits& traits = traits_of(op.kind);
  if (traits.has_counts) {
    why = "the record has a hash of the counts only";
    return std::nullopt;
  }
  if (op.count == 0 && traits.required != OpBuffer::neither) {
    why = "no elements";
    return std::nullopt;
  }
  for (const OpFacts& facts : op_facts())
    if (facts.kind == op.kind && !facts.uneven) return facts.op;
  why = "the benchmark has no such op";
  return std::nullopt;
}

Case case_of(const RecordedOp& op, BenchOp bench_op, int ranks, Place place) {
  const OpFacts& facts = facts_of(bench_op);
  Case c;
  c.op = bench_op;
  if (bench_op == BenchOp::barrier) return c;
  c.dtype = op.dtype;
  if (is_reduction(op.kind)) c.redop = op.redop;
  if (facts.rooted) c.root = op.root;
  c.place = facts.in_place ? place : Place::out;
  c.shard = op.count;
  c.bytes = op.count * size_of(op.dtype) * (facts.sharded ? static_cast<unsigned>(ranks) : 1);
  return c;
}

// The ops that all ranks of the group have finished, by sequence.
std::vector<ReplayOp> ops_of(const RecordedGroup& group, Place place, ReplayPlan& plan) {
  std::vector<ReplayOp> all;
  std::vector<BySequence> ranks;
  std::uint64_t first = 0, last = std::numeric_limits<std::uint64_t>::max();
  for (const RecordedRank& rank : group.ranks) {
    BySequence ops = collectives_of(rank);
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
    }
    if (op.spans.size() < ranks.size()) continue;
    std::string why;
    const auto bench_op = bench_op_of(call, why);
    if (bench_op && facts_of(*bench_op).rooted && (call.root < 0 || call.root >= group.size))
      throw InvalidArgument(fmt::format("op #{} of group \"{}\": {}: no such root", at->first,
                                        group.name, text_of(call)));
    if (!bench_op) {
      ++left_out[fmt::format("{}: {}", to_string(call.kind), why)];
      continue;
    }
    op.as_case = case_of(call, *bench_op, group.size, place);
    all.push_back(std::move(op));
  }
  for (const auto& [what, count] : left_out)
    plan.notes.push_back(
        fmt::format("group \"{}\": {} ops are left out: {}", group.name, count, what));
  std::size_t messages = 0;
  for (const RecordedOp& op : group.ranks[0].ops) messages += is_point_to_point(op.kind) ? 1 : 0;
  if (messages > 0)
    plan.notes.push_back(
        fmt::format("group \"{}\": messages are left out: rank 0 has {}", group.name, messages));
  return all;
}

// In the order in which the last rank came to them, where those of a group stay in theirs.
void take_in_order(std::vector<std::vector<ReplayOp>> groups, ReplayPlan& plan) {
  std::vector<std::size_t> next(groups.size());
  for (;;) {
    std::optional<std::size_t> first;
    double start = 0;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      if (next[group] == groups[group].size()) continue;
      const double its = common_span(groups[group][next[group]].spans).start;
      if (first && its >= start) continue;
      first = group;
      start = its;
    }
    if (!first) return;
    plan.ops.push_back(std::move(groups[*first][next[*first]++]));
  }
}

std::vector<std::uint64_t> calls_of(const ReplayPlan& plan) {
  std::map<std::tuple<std::size_t, OpKind, DType, ReduceOp::Kind, std::uint64_t, int>,
           std::uint64_t>
      numbers;
  std::vector<std::uint64_t> calls;
  for (const ReplayOp& op : plan.ops)
    calls.push_back(numbers
                        .try_emplace({op.group, op.call.kind, op.call.dtype, op.call.redop,
                                      op.call.count, op.call.root},
                                     numbers.size())
                        .first->second);
  return calls;
}

double gap_before(const std::vector<ReplayOp>& ops, std::size_t index, std::size_t rank) {
  if (index == 0) return 0;
  const double start = ops[index].spans[rank].start;
  double free = ops[index - 1].spans[rank].start;
  for (std::size_t i = index; i-- > 0 && index - i <= kMostInFlight;) {
    const Span& before = ops[i].spans[rank];
    if (before.end > start) continue;
    free = std::max(free, before.end);
    break;
  }
  return std::max(0.0, start - free);
}

// Keeps whole steps. A step starts where rank 0 computed the longest before.
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
  std::size_t phase = 0;
  double most = -1;
  for (std::size_t i = 0; i < found.period; ++i) {
    std::vector<double> gaps;
    for (std::size_t at = found.first + i; at < found.first + found.count; at += found.period)
      gaps.push_back(plan.ops[at].gaps[0]);
    if (const double gap = median(std::move(gaps)); gap > most) {
      most = gap;
      phase = i;
    }
  }
  std::vector<ReplayOp> kept;
  for (const std::size_t step : find_steps(calls, found.first + phase, found.period))
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
  std::map<CellKey, std::size_t> by_case;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    ReplayOp& op = plan.ops[i];
    op.slot = plan.has_steps
                  ? i % plan.ops_per_step
                  : by_case.try_emplace(key_of(op.as_case), by_case.size()).first->second;
    if (op.slot == plan.slots.size()) plan.slots.push_back(op.as_case);
  }
}

bool in_flight(const ReplayOp& op, const ReplayOp& later) {
  for (std::size_t rank = 0; rank < op.spans.size(); ++rank)
    if (later.spans[rank].start + kClockError < op.spans[rank].end) return true;
  return false;
}

// Which ops were in flight when others started. None stays so beyond its step, or until another op
// takes its buffers.
void find_flights(ReplayPlan& plan) {
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    ReplayOp& op = plan.ops[i];
    const std::size_t step_end = (i / plan.ops_per_step + 1) * plan.ops_per_step;
    const std::size_t end = std::min({plan.ops.size(), step_end, i + kMostInFlight});
    std::size_t next = i + 1;
    while (next < end && in_flight(op, plan.ops[next]) && plan.ops[next].slot != op.slot) ++next;
    op.joined_before.reset();
    if (next > i + 1) op.joined_before = next;
  }
}

}  // namespace

ReplayPlan plan_replay(const JobRecord& record, Place place, std::size_t ops_per_step) {
  ReplayPlan plan;
  for (const RecordedGroup& group : record.groups) plan.ranks = std::max(plan.ranks, group.size);
  const RecordedGroup* world = nullptr;
  std::vector<std::vector<ReplayOp>> groups;
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
    if (ops.empty()) continue;
    groups.push_back(std::move(ops));
    plan.groups.push_back(group.name);
  }
  if (groups.empty()) {
    const std::string notes =
        plan.notes.empty() ? "" : fmt::format(" ({})", fmt::join(plan.notes, "; "));
    throw InvalidArgument("the record has no collective that all ranks have finished" + notes);
  }
  take_in_order(std::move(groups), plan);
  for (std::size_t i = 0; i < plan.ops.size(); ++i)
    for (std::size_t rank = 0; rank < plan.ops[i].spans.size(); ++rank)
      plan.ops[i].gaps.push_back(gap_before(plan.ops, i, rank));
  cut_into_steps(plan, ops_per_step);
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

Span common_span(std::span<const Span> of_ranks) {
  Span all = of_ranks.front();
  for (const Span& span : of_ranks)
    all = {std::max(all.start, span.start), std::max(all.end, span.end)};
  return {all.start, std::max(all.start, all.end)};
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
    for (std::size_t i = first; i < first + plan.ops_per_step; ++i)
      common.push_back(common_span(spans[i]));
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
