// SPDX-License-Identifier: BSD-3-Clause
#include "tests/chaos/rank.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "c10d/capability.h"

namespace c10d::chaos {

using std::chrono::milliseconds;
using std::chrono::seconds;

CaseRank::CaseRank(Board& board, const Place& place, const Plan& plan, int rank)
    : board_(board),
      place_(place),
      plan_(plan),
      rank_(rank),
      mine_(board.ranks[rank]),
      plant_(rank == plan.ranks - 1 ? board.plant.load() : Plant::none),
      groups_(kMaxGroups),
      memory_(kMaxGroups),
      deed_(plan, mine_) {}

ProcessGroup CaseRank::init(const std::string& name, const std::vector<int>& members,
                            milliseconds patience) {
  const auto me = std::ranges::find(members, rank_);
  return init_process_group({.backend = place_.backend,
                             .store = store_,
                             .rank = static_cast<int>(me - members.begin()),
                             .size = static_cast<int>(members.size()),
                             .timeout = plan_.timeout,
                             .connect_timeout = patience,
                             .name = name});
}

void CaseRank::run() {
  const std::string name = "case-" + std::to_string(board_.round);
  try {
    if (rank_ == plan_.culprit) deed_.begin(-1, nullptr);
    if (plan_.store_process)
      store_ = make_prefix_store(
          name, make_tcp_store({.port = static_cast<std::uint16_t>(board_.port.load()),
                                .timeout = seconds(20)}));
    else
      store_ = make_file_store(place_.folder + "/" + name, plan_.ranks, seconds(20));
    groups_[kWorld] = init(name, plan_.groups[kWorld].members, plan_.timeout);
    forming_ = false;
    run_steps();
  } catch (const DistError& error) {
    tell(error.failure());
  } catch (const std::exception& error) {
    tell_other(error.what());
  } catch (const Leaving&) {
    for (ProcessGroup& group : groups_) group = ProcessGroup();
    return end_pending();
  }
  give_up();
  deed_.finish();
}

void CaseRank::run_steps() {
  for (int index = 0; index < static_cast<int>(plan_.steps.size()); ++index) {
    const Step& step = plan_.steps[static_cast<std::size_t>(index)];
    const GroupPlan& group = plan_.groups[static_cast<std::size_t>(step.group)];
    if (group.rank_of(rank_) < 0) continue;
    step_ = index;
    group_ = step.group;
    plant_at(index);
    if (is_culprit_at(index)) deed_.begin(index, &group_of(index));
    run_step(index);
  }
}

bool CaseRank::is_culprit_at(int index) const {
  return rank_ == plan_.culprit && index == plan_.at;
}

ProcessGroup& CaseRank::group_of(int index) {
  return groups_[static_cast<std::size_t>(plan_.steps[static_cast<std::size_t>(index)].group)];
}

void CaseRank::end_step(int index, StepEnd end) {
  log(index).ended = steady_now();
  log(index).end = end;
}

void CaseRank::run_step(int index) {
  const Step& step = plan_.steps[static_cast<std::size_t>(index)];
  ProcessGroup& group = group_of(index);
  const Deviation deviation = plan_.deviation;
  if (is_other_call(deviation) || is_other_order(deviation)) {
    const int partner = deviation == Deviation::swap ? next_collective(plan_, plan_.at) : -1;
    if (rank_ == plan_.culprit && (index == plan_.at || index == partner) &&
        is_supported(group, step.call) && is_supported(group, plan_.other)) {
      if (index == plan_.at) mine_.deviated = steady_now();
      if (deviation == Deviation::skip) return;
      if (deviation == Deviation::swap) {
        const int instead = index == plan_.at ? partner : plan_.at;
        return perform(instead, plan_.steps[static_cast<std::size_t>(instead)].call);
      }
      if (deviation != Deviation::add) return perform(index, plan_.other);
      log(index).begun = steady_now();
      collective(index, plan_.other);
    }
  }
  if (step.kind == StepKind::call) return perform(index, step.call);
  log(index).begun = steady_now();
  switch (step.kind) {
    case StepKind::allocate:
      memory_[static_cast<std::size_t>(step.group)] = group.allocate<std::uint8_t>(step.bytes);
      break;
    case StepKind::monitored_barrier:
      group.monitored_barrier();
      break;
    case StepKind::drain:
      drain(step.group);
      break;
    case StepKind::leave:
      group.shutdown();
      break;
    default:
      form(index);
      break;
  }
  end_step(index, StepEnd::ok);
}

void CaseRank::form(int index) {
  const Step& step = plan_.steps[static_cast<std::size_t>(index)];
  ProcessGroup& parent = group_of(index);
  forming_ = true;
  if (step.kind == StepKind::split) {
    const int place = plan_.groups[static_cast<std::size_t>(step.group)].rank_of(rank_);
    const int color = step.colors[static_cast<std::size_t>(place)];
    ProcessGroup made = parent.split(color < 0 ? std::nullopt : std::optional(color));
    const auto mine = std::ranges::find_if(step.made, [this](int group) {
      return plan_.groups[static_cast<std::size_t>(group)].rank_of(rank_) >= 0;
    });
    if (mine != step.made.end()) groups_[static_cast<std::size_t>(*mine)] = std::move(made);
  } else {
    const auto made = static_cast<std::size_t>(step.made.front());
    if (plan_.groups[made].rank_of(rank_) >= 0) {
      std::vector<int> ranks;
      for (const int member : plan_.groups[made].members)
        ranks.push_back(plan_.groups[static_cast<std::size_t>(step.group)].rank_of(member));
      groups_[made] = parent.new_group(ranks, "step " + std::to_string(index));
    }
  }
  forming_ = false;
}

bool CaseRank::is_supported(const ProcessGroup& group, const Case& c) const {
  if (c.exchange != Exchange::collective) return true;
  return static_cast<bool>(
      group.supports({.op = c.op, .dtype = c.numbers.dtype, .reduce_op = c.numbers.op.kind}));
}

void CaseRank::perform(int index, const Case& c) {
  ProcessGroup& group = group_of(index);
  if (!is_supported(group, plan_.steps[static_cast<std::size_t>(index)].call))
    return end_step(index, StepEnd::left_out);
  log(index).begun = steady_now();
  if (c.exchange == Exchange::collective) return collective(index, c);
  exchange(index, c);
  end_step(index, StepEnd::ok);
}

void CaseRank::collective(int index, const Case& c) {
  ProcessGroup& group = group_of(index);
  const int number = plan_.steps[static_cast<std::size_t>(index)].group;
  const bool busy = std::ranges::any_of(pending_, [&](const Pending& p) {
    return plan_.steps[static_cast<std::size_t>(p.step)].group == number;
  });
  const bool allocated = c.memory == conformance::Memory::allocated ||
                         (c.memory == conformance::Memory::mixed && group.rank() % 2 == 1);
  std::list<Pending> one(1);  // in its place, since the call points into it
  Pending& p = one.front();
  p.step = index;
  p.collective = std::make_unique<conformance::Collective>(
      c, group.rank(), group.size(), p.buffers,
      allocated && !busy && !c.async ? &memory_[static_cast<std::size_t>(number)] : nullptr);
  try {
    p.work = p.collective->call(group, c.async);
  } catch (const DistError&) {
    keep_for_mpi(one);
    throw;
  }
  if (c.async) {
    pending_.splice(pending_.end(), one);
    return call_it(p.work);
  }
  check_collective(index, *p.collective);
  end_step(index, StepEnd::ok);
}

void CaseRank::call_it(Work& work) {
  if (step_ % 2 == 0) return;
  ++callbacks_expected_;
  work.on_done([count = callbacks_](const Failure*) { ++*count; });
}

void CaseRank::check_collective(int index, const conformance::Collective& collective) {
  if (plant_ == Plant::wrong_result && collective.output_bytes() > 0)
    *collective.output() ^= std::byte{1};
  for (const std::string& what : collective.wrong()) check(index, what);
}

void CaseRank::drain(int group) {
  for (auto p = pending_.begin(); p != pending_.end();) {
    if (plan_.steps[static_cast<std::size_t>(p->step)].group != group) {
      ++p;
      continue;
    }
    const int waiting = std::exchange(step_, p->step);
    p->work.wait();
    check_collective(p->step, *p->collective);
    end_step(p->step, StepEnd::ok);
    step_ = waiting;
    p = pending_.erase(p);
  }
}

void CaseRank::check(int index, const std::string& what) {
  if (what.empty() || mine_.wrong[0] != 0) return;
  // What a call of the culprit gives that no other made has no right result.
  if (rank_ == plan_.culprit && mine_.deviated != 0 && index == plan_.at) return;
  write_text(mine_.wrong, "step " + std::to_string(index) + ", " +
                              describe(plan_.steps[static_cast<std::size_t>(index)]) + ": " + what);
}

void CaseRank::plant_at(int index) {
  if (index != 2) return;
  if (plant_ == Plant::crash) raise(SIGSEGV);
  while (plant_ == Plant::hang) pause();
}

int CaseRank::named_by(const Failure& failure, int group) const {
  int by_rank = -1, by_pid = -1;
  // In the numbers of the group that the failure is about, or of the one that comes together.
  const GroupPlan* numbers = nullptr;
  for (std::size_t i = 0; i < plan_.groups.size(); ++i)
    if (groups_[i] && groups_[i].id() == failure.group) numbers = &plan_.groups[i];
  if (numbers == nullptr && !forming_) numbers = &plan_.groups[static_cast<std::size_t>(group)];
  if (numbers == nullptr && step_ >= 0)
    for (const int made : plan_.steps[static_cast<std::size_t>(step_)].made)
      if (plan_.groups[static_cast<std::size_t>(made)].rank_of(rank_) >= 0)
        numbers = &plan_.groups[static_cast<std::size_t>(made)];
  if (numbers == nullptr) numbers = &plan_.groups[kWorld];
  if (failure.rank >= 0 && failure.rank < numbers->size())
    by_rank = numbers->members[static_cast<std::size_t>(failure.rank)];
  for (int rank = 0; rank < plan_.ranks; ++rank)
    if (failure.pid != 0 && board_.ranks[rank].pid == failure.pid) by_pid = rank;
  if (failure.rank < 0 && failure.pid == 0) return -1;
  return failure.pid != 0 && by_pid != by_rank ? -2 : by_rank;
}

void CaseRank::tell(const Failure& failure) {
  Told& told = mine_.told;
  told.step = step_;
  told.group = group_;
  told.forming = forming_;
  told.code = static_cast<std::int32_t>(failure.code);
  told.named = named_by(failure, group_);
  if (plant_ == Plant::wrong_name && told.named >= 0) told.named = (told.named + 1) % plan_.ranks;
  told.time = steady_now();
  write_text(told.text, DistError(failure).what());
  if (step_ >= 0) end_step(step_, plant_ == Plant::silent ? StepEnd::ok : StepEnd::failed);
  mine_.has_failure = true;
}

void CaseRank::tell_other(const std::string& what) {
  mine_.told.step = step_;
  mine_.told.group = group_;
  mine_.told.time = steady_now();
  write_text(mine_.told.text, what);
  mine_.has_failure = true;
}

// Who cannot go on says so in its other groups, so that nobody waits for it.
void CaseRank::give_up() {
  if (mine_.has_failure) {
    mine_.aborted = steady_now();
    for (const ProcessGroup& group : groups_)
      if (group && group.failure() == nullptr) group.abort("another group of this rank broke");
    check_same_cause();
  }
  end_pending();
  for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
    const Failure* failure = groups_[i] ? groups_[i].failure() : nullptr;
    if (failure == nullptr) continue;
    forming_ = false;
    mine_.broken[i].code = static_cast<std::int32_t>(failure->code);
    mine_.broken[i].named = named_by(*failure, static_cast<int>(i));
  }
}

// A group that broke says why in every later call.
void CaseRank::check_same_cause() {
  const auto failed = static_cast<std::size_t>(group_);
  if (!groups_[failed] || mine_.told.code < 0) return;
  try {
    groups_[failed].barrier();
    write_text(mine_.wrong, "a barrier after the failure went through");
  } catch (const DistError& error) {
    const Failure* cause = groups_[failed].failure();
    if (cause == nullptr || cause->code != error.code() || cause->rank != error.failure().rank)
      write_text(mine_.wrong, "a later call failed otherwise: " + std::string(error.what()));
    else if (!mine_.told.forming && static_cast<std::int32_t>(cause->code) != mine_.told.code)
      write_text(mine_.wrong, "the group is broken otherwise: " + std::string(error.what()));
  }
}

// Their memory must stay until they are done.
void CaseRank::end_pending() {
  for (Pending& p : pending_) {
    try {
      p.work.wait(seconds(10));
      check_collective(p.step, *p.collective);
      end_step(p.step, StepEnd::ok);
    } catch (const DistTimeoutError& error) {
      if (!p.work.done())
        write_text(mine_.wrong, "an async call does not end though its group broke: " +
                                    describe(plan_.steps[static_cast<std::size_t>(p.step)]));
      end_step(p.step, StepEnd::failed);
    } catch (const DistError&) {
      end_step(p.step, StepEnd::failed);
    }
  }
  if (mine_.has_failure) keep_for_mpi(pending_);
  pending_.clear();
}

// What MPI works on when an op failed stays its own until the process ends, also the memory of the
// op.
void CaseRank::keep_for_mpi(std::list<Pending>& calls) {
  static std::list<Pending> kept;
  if (place_.backend == "mpi") kept.splice(kept.end(), calls);
}

void CaseRank::recover() {
  const bool all = !is_gone_after(plan_.deviation);
  std::vector<int> left;
  for (int rank = 0; rank < plan_.ranks; ++rank)
    if (all || rank != plan_.culprit) left.push_back(rank);
  if (std::ranges::find(left, rank_) == left.end()) return;
  try {
    ProcessGroup rest = init("rest-" + std::to_string(board_.round), left, milliseconds(10000));
    rest.set_timeout(seconds(10));
    std::vector<std::int64_t> sum(1000, rank_ + 1);
    rest.all_reduce(sum);
    std::int64_t expected = 0;
    for (const int rank : left) expected += rank + 1;
    const bool right = sum == std::vector<std::int64_t>(1000, expected);
    rest.shutdown();
    write_text(mine_.recovery, right ? "ok" : "a wrong sum");
  } catch (const std::exception& error) {
    write_text(mine_.recovery, error.what());
  }
}

void CaseRank::end() {
  if (plan_.recover) recover();
  memory_.clear();
  for (ProcessGroup& group : groups_) group = ProcessGroup();
  const auto deadline = steady_now() + 2'000'000'000;
  while (*callbacks_ < callbacks_expected_ && steady_now() < deadline) usleep(200);
  if (*callbacks_ != callbacks_expected_ && mine_.wrong[0] == 0)
    write_text(mine_.wrong, std::to_string(*callbacks_) + " of " +
                                std::to_string(callbacks_expected_) + " callbacks were called");
  store_.reset();
}

}  // namespace c10d::chaos
