// SPDX-License-Identifier: BSD-3-Clause
#include "tests/chaos/plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <random>

namespace c10d::chaos {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// What every backend supports.
constexpr std::array kCommonDTypes = {DType::f32, DType::f64, DType::i32, DType::i64, DType::u8};

// The op after `op` that is a collective, in a circle.
OpKind next_collective(OpKind op) {
  do op = static_cast<OpKind>((static_cast<int>(op) + 1) % kOpCount);
  while (is_point_to_point(op));
  return op;
}

std::vector<OpKind> all_collectives() {
  std::vector<OpKind> all;
  for (const OpTraits& op : kOpTraits)
    if (!op.is_point_to_point) all.push_back(op.kind);
  return all;
}

bool is_collective(const Step& step) {
  return step.kind == StepKind::call && step.call.exchange == Exchange::collective;
}

// Whether ranks that make these two calls are told apart.
bool differ(const Case& a, const Case& b, int ranks) {
  if (a.op != b.op) return true;
  if (a.op == OpKind::barrier) return false;
  if (a.numbers.dtype != b.numbers.dtype || a.size != b.size) return true;
  if (is_reduction(a.op) && a.numbers.op.kind != b.numbers.op.kind) return true;
  const auto n = static_cast<std::uint32_t>(ranks);
  return traits_of(a.op).has_root && a.root % n != b.root % n;
}

class Drawing {
 public:
  Drawing(std::string_view backend, std::uint64_t seed)
      : random_(conformance::mix(seed)), mpi_(backend == "mpi") {
    plan_.seed = seed;
    plan_.ranks = ranks_of(seed);
    GroupPlan world;
    world.members.resize(static_cast<std::size_t>(plan_.ranks));
    std::iota(world.members.begin(), world.members.end(), 0);
    plan_.groups.push_back(world);
    usable_ = {kWorld};
  }

  Plan draw() {
    const std::size_t length = 4 + below(24);
    while (plan_.steps.size() < length) add_step();
    for (const int group : usable_) add({.kind = StepKind::drain, .group = group});
    // Who has nothing to do with a failure learns of it here.
    add({.call = {.id = plan_.steps.size()}});
    draw_deviation();
    // MPI's world has the ranks that mpirun started, or there is none.
    const bool all_are_left = !is_gone_after(plan_.deviation);
    plan_.recover = chance(50) && (!mpi_ || all_are_left);
    plan_.store_process = chance(40);
    plan_.strangers = plan_.store_process && chance(25);
    const bool waits = plan_.deviation == Deviation::stop || is_other_order(plan_.deviation) ||
                       (plan_.at < 0 && is_death(plan_.deviation)) || waits_for_anybody(plan_);
    plan_.timeout = waits ? milliseconds(2000) : milliseconds(20000);
    return std::move(plan_);
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <class T>
  T one_of(const std::vector<T>& from) {
    return from[below(from.size())];
  }
  void add(Step step) {
    if (plan_.steps.size() < kMaxSteps) plan_.steps.push_back(std::move(step));
  }

  void add_step() {
    const int group = one_of(usable_);
    const auto kind = below(100);
    const bool room = plan_.groups.size() + kMaxRanks <= kMaxGroups;
    if (kind < 10 && room) return add_form(group);
    if (kind < 15 && room) return add_split(group);
    if (kind < 20)
      return add({.kind = StepKind::allocate, .group = group, .bytes = 4096 + below(2 << 20)});
    if (kind < 23) return add({.kind = StepKind::monitored_barrier, .group = group});
    if (kind < 30) return add({.kind = StepKind::drain, .group = group});
    if (kind < 33 && group != kWorld) {
      add({.kind = StepKind::drain, .group = group});
      add({.kind = StepKind::leave, .group = group});
      std::erase(usable_, group);
      return;
    }
    add({.group = group, .call = kind < 45 ? exchange(group) : collective()});
  }

  void add_form(int parent) {
    GroupPlan group{.parent = parent,
                    .members = plan_.groups[static_cast<std::size_t>(parent)].members};
    std::shuffle(group.members.begin(), group.members.end(), random_);
    if (chance(60)) group.members.resize(1 + below(group.members.size()));
    const int made = static_cast<int>(plan_.groups.size());
    plan_.groups.push_back(std::move(group));
    usable_.push_back(made);
    add({.kind = StepKind::form, .group = parent, .made = {made}});
  }

  void add_split(int parent) {
    Step step{.kind = StepKind::split, .group = parent};
    const std::vector<int> members = plan_.groups[static_cast<std::size_t>(parent)].members;
    const std::uint64_t colors = 1 + below(2);
    for (std::size_t i = 0; i < members.size(); ++i)
      step.colors.push_back(chance(15) ? -1 : static_cast<int>(below(colors)));
    for (int color = 0; color < static_cast<int>(colors); ++color) {
      GroupPlan group{.parent = parent};
      for (std::size_t i = 0; i < members.size(); ++i)
        if (step.colors[i] == color) group.members.push_back(members[i]);
      if (group.members.empty()) continue;
      step.made.push_back(static_cast<int>(plan_.groups.size()));
      usable_.push_back(step.made.back());
      plan_.groups.push_back(std::move(group));
    }
    add(std::move(step));
  }

  std::size_t size() {
    const auto kind = below(100);
    if (kind < 8) return 0;
    if (kind < 50) return 1 + below(64);
    if (kind < 80) return 1 + below(8192);
    if (kind < 97) return 1 + below(128 << 10);
    return 1 + below(512 << 10);
  }

  Case collective() {
    Case c{.id = below(1000), .op = collectives_[below(collectives_.size())]};
    do {
      c.numbers.dtype = static_cast<DType>(below(kDTypeCount));
    } while (is_reduction(c.op) && is_float8(c.numbers.dtype));  // the host moves them only
    c.numbers = {.dtype = c.numbers.dtype, .values = conformance::Values::exact, .seed = random_()};
    if (is_reduction(c.op)) {
      do {
        c.numbers.op = static_cast<ReduceOp::Kind>(below(kReduceOpCount));
      } while (!why_unsupported(c.op, c.numbers.op.kind, c.numbers.dtype).empty());
      if (c.numbers.op.kind == ReduceOp::premul_sum)
        c.numbers.op = ReduceOp::premul(conformance::kExactPremulFactor);
    }
    c.size = size();
    c.root = static_cast<std::uint32_t>(below(kMaxRanks));
    c.shift = chance(30) ? below(8) : 0;
    c.in_place = chance(40);
    c.async = chance(35);
    if (!c.async && chance(30))
      c.memory = chance(50) ? conformance::Memory::allocated : conformance::Memory::mixed;
    return c;
  }

  Case exchange(int group) {
    Case c = collective();
    if (plan_.groups[static_cast<std::size_t>(group)].size() < 2) return c;
    constexpr std::array kinds = {Exchange::ring_blocking, Exchange::ring_tags,
                                  Exchange::any_source, Exchange::ring_batch};
    c.exchange = kinds[below(kinds.size())];
    c.numbers.op = ReduceOp::sum;
    c.async = false;
    return c;
  }

  // Of the steps that the culprit takes part in, those where it may deviate so.
  void draw_deviation() {
    plan_.deviation = chance(12) ? Deviation::none : static_cast<Deviation>(below(kDeviationCount));
    // mpirun ends all ranks with the first: little is seen, and it takes long to start.
    if (mpi_ && plan_.deviation == Deviation::exec) plan_.deviation = Deviation::other_op;
    if (mpi_ && is_death(plan_.deviation) && chance(80)) plan_.deviation = Deviation::other_dtype;
    plan_.culprit = static_cast<int>(below(static_cast<std::uint64_t>(plan_.ranks)));
    if (plan_.deviation == Deviation::none) return;
    std::vector<int> applicable, forming;
    for (int at = 0; at < static_cast<int>(plan_.steps.size()); ++at) {
      if (!may_deviate(at)) continue;
      applicable.push_back(at);
      const StepKind kind = plan_.steps[static_cast<std::size_t>(at)].kind;
      if (kind == StepKind::form || kind == StepKind::split || kind == StepKind::allocate)
        forming.push_back(at);
    }
    const bool in_process = plan_.deviation >= Deviation::kill;
    if (applicable.empty()) {
      plan_.deviation = Deviation::none;
      return;
    }
    plan_.at = one_of(in_process && !forming.empty() && chance(50) ? forming : applicable);
    if (in_process && !mpi_ && plan_.deviation != Deviation::abort &&
        plan_.deviation != Deviation::leave && chance(8))
      plan_.at = -1;
    const bool in_thread = in_process && plan_.deviation != Deviation::leave &&
                           (plan_.at < 0 || plan_.deviation == Deviation::abort || chance(70));
    if (in_thread) {
      constexpr std::array<unsigned, 4> kLongest = {100, 1000, 5000, 30000};
      plan_.delay = microseconds(1 + below(kLongest[below(kLongest.size())]));
    }
  }

  bool may_deviate(int at) {
    const Step& step = plan_.steps[static_cast<std::size_t>(at)];
    const GroupPlan& group = plan_.groups[static_cast<std::size_t>(step.group)];
    if (group.rank_of(plan_.culprit) < 0) return false;
    if (plan_.deviation >= Deviation::kill) return true;
    if (group.size() < 2 || !is_collective(step)) return false;
    if (plan_.deviation == Deviation::skip || plan_.deviation == Deviation::swap) {
      const int next = next_collective(plan_, at);
      if (next < 0) return plan_.deviation == Deviation::skip;
      return differ(step.call, plan_.steps[static_cast<std::size_t>(next)].call, group.size());
    }
    return another(step.call, plan_.deviation, group.size()).has_value();
  }

 public:
  static std::optional<Case> another(const Case& c, Deviation how, int ranks) {
    Case other = c;
    if (how == Deviation::other_op) {
      other.op = next_collective(c.op);
      other.numbers.dtype = kCommonDTypes[c.id % 2];
      other.numbers.op = ReduceOp::sum;
    } else if (how == Deviation::other_dtype) {
      other.numbers.dtype = kCommonDTypes[c.id % kCommonDTypes.size()];
      other.numbers.op = ReduceOp::sum;
      if (other.numbers.dtype == c.numbers.dtype) return {};
    } else if (how == Deviation::other_count || how == Deviation::add) {
      // So much that each rank's share changes, also where shares are thirds of an n-th.
      other.size += 3 * static_cast<std::size_t>(ranks);
    } else if (how == Deviation::other_root) {
      ++other.root;
    } else if (is_reduction(c.op)) {
      other.numbers.op =
          c.numbers.op.kind == ReduceOp::max ? ReduceOp::Kind::min : ReduceOp::Kind::max;
    }
    if (!differ(c, other, ranks)) return {};
    return other;
  }

 private:
  std::mt19937_64 random_;
  const bool mpi_;
  const std::vector<OpKind> collectives_ = all_collectives();
  Plan plan_;
  std::vector<int> usable_;  // groups that have not ended
};

}  // namespace

int next_collective(const Plan& plan, int at) {
  const Step& step = plan.steps[static_cast<std::size_t>(at)];
  for (int i = at + 1; i < static_cast<int>(plan.steps.size()); ++i) {
    const Step& next = plan.steps[static_cast<std::size_t>(i)];
    if (next.group == step.group && is_collective(next)) return i;
  }
  return -1;
}

bool waits_for_anybody(const Plan& plan) {
  return plan.deviation == Deviation::leave &&
         std::any_of(plan.steps.begin() + std::max(plan.at, 0), plan.steps.end(),
                     [](const Step& step) { return step.call.exchange == Exchange::any_source; });
}

int GroupPlan::rank_of(int world_rank) const {
  const auto found = std::ranges::find(members, world_rank);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

std::string_view to_string(Deviation deviation) noexcept {
  constexpr std::array<std::string_view, kDeviationCount> names = {
      "none", "other_op", "other_dtype", "other_count", "other_root", "other_reduce_op",
      "skip", "add",      "swap",        "kill",        "stop",       "exit0",
      "exec", "leave",    "abort",       "mute"};
  return names[static_cast<std::size_t>(deviation)];
}

int ranks_of(std::uint64_t seed) {
  return 2 + static_cast<int>(conformance::mix(seed / kBlock) % (kMaxRanks - 1));
}

Plan draw(std::string_view backend, std::uint64_t seed) {
  Drawing drawing(backend, seed);
  Plan plan = drawing.draw();
  if (plan.at >= 0) {
    const Step& step = plan.steps[static_cast<std::size_t>(plan.at)];
    const int ranks = plan.groups[static_cast<std::size_t>(step.group)].size();
    plan.other = Drawing::another(step.call, plan.deviation, ranks).value_or(step.call);
  }
  return plan;
}

std::string describe(const Step& step) {
  const std::string group = " in group " + std::to_string(step.group);
  switch (step.kind) {
    case StepKind::call:
      return conformance::describe(step.call) + group;
    case StepKind::form:
      return "new_group" + group;
    case StepKind::split:
      return "split" + group;
    case StepKind::allocate:
      return "allocate " + std::to_string(step.bytes) + group;
    case StepKind::monitored_barrier:
      return "monitored_barrier" + group;
    case StepKind::drain:
      return "wait for async calls" + group;
    case StepKind::leave:
      return "shutdown" + group;
  }
  return {};
}

std::string describe(const Plan& plan) {
  std::string text = std::to_string(plan.ranks) + " ranks, " + std::to_string(plan.steps.size()) +
                     " steps, " + std::string(to_string(plan.deviation));
  if (plan.deviation == Deviation::none) return text;
  text += " of rank " + std::to_string(plan.culprit);
  text += plan.at < 0 ? " while the world comes together"
                      : " at step " + std::to_string(plan.at) + " (" +
                            describe(plan.steps[static_cast<std::size_t>(plan.at)]) + ")";
  if (plan.delay.count() > 0) text += " after " + std::to_string(plan.delay.count()) + " us";
  return text;
}

}  // namespace c10d::chaos
