// SPDX-License-Identifier: BSD-3-Clause
#include "tests/chaos/judge.h"

#include <algorithm>

#include "c10d/error.h"

namespace c10d::chaos {
namespace {

std::string name_of(int code) {
  return code < 0 ? "no DistError" : std::string(to_string(static_cast<Code>(code)));
}

// Whether the result on `rank` cannot be without `peer` having made the call. Ranks of the group.
bool needs(const Step& step, int rank, int peer, int ranks) {
  if (step.kind != StepKind::call)
    return step.kind == StepKind::monitored_barrier || step.kind == StepKind::allocate ||
           step.kind == StepKind::split;
  if (step.call.exchange != Exchange::collective) return false;
  const OpKind op = step.call.op;
  if (op == OpKind::barrier) return true;
  if (step.call.size == 0) return false;
  const int root = static_cast<int>(step.call.root % static_cast<std::uint32_t>(ranks));
  switch (op) {
    case OpKind::all_reduce:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_to_all:
      return true;
    case OpKind::scan:
    case OpKind::exscan:
      return peer < rank;
    case OpKind::broadcast:
    case OpKind::scatter:
      return peer == root;
    case OpKind::reduce:
    case OpKind::gather:
      return rank == root;
    default:
      return false;  // of uneven shares some are empty
  }
}

class Judge {
 public:
  Judge(const Plan& plan, const Board& board, const Ends& ends, const Bounds& bounds)
      : plan_(plan), board_(board), ends_(ends), bounds_(bounds) {}

  std::vector<Finding> run() {
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      if (ends_.gone[static_cast<std::size_t>(rank)])
        check_end(rank);
      else
        check_rank(rank);
    }
    for (std::size_t step = 0; step < plan_.steps.size(); ++step) check_silence(step);
    for (std::size_t group = 0; group < plan_.groups.size(); ++group) check_agreement(group);
    return std::move(findings_);
  }

 private:
  const RankBoard& of(int rank) const { return board_.ranks[rank]; }
  std::int64_t deviated() const { return of(plan_.culprit).deviated; }
  void find(std::string kind, int rank, const std::string& text) {
    findings_.push_back({std::move(kind), "rank " + std::to_string(rank) + ": " + text});
  }

  void check_end(int rank) {
    const bool own = rank == plan_.culprit && is_death(plan_.deviation) && deviated() != 0;
    if (!own && !(ends_.launcher_ends_all && deviated() != 0))
      find("crash", rank, "its process ended: " + ends_.how[static_cast<std::size_t>(rank)]);
  }

  void check_rank(int rank) {
    const RankBoard& mine = of(rank);
    if (mine.wrong[0] != 0) find("wrong_result", rank, mine.wrong);
    if (mine.has_failure) check_failure(rank, mine.told);
    if (mine.recovery[0] != 0 && std::string_view(mine.recovery) != "ok")
      find("recovery", rank, "could not go on: " + std::string(mine.recovery));
    const bool kept = ends_.keeps_all || (ends_.keeps_failed_joins && mine.told.forming);
    if (mine.state == RankState::idle && !kept) check_leaks(rank, mine);
  }

  void check_leaks(int rank, const RankBoard& mine) {
    const auto more = [&](const char* what, int before, int after) {
      if (after > before)
        find("leak", rank,
             "has " + std::to_string(after) + " " + what + ", had " + std::to_string(before));
    };
    more("descriptors", mine.before.descriptors, mine.after.descriptors);
    more("threads", mine.before.threads, mine.after.threads);
    more("mappings of shared memory", mine.before.mappings, mine.after.mappings);
  }

  void check_failure(int rank, const Told& told) {
    const std::string text = std::string(told.text) + " [step " + std::to_string(told.step) + "]";
    if (told.code < 0) return find("unexpected", rank, text);
    if (plan_.deviation == Deviation::none || plan_.deviation == Deviation::mute ||
        deviated() == 0 || told.time < deviated())
      return find("unexpected", rank, "a failure without a cause: " + text);
    const auto code = static_cast<Code>(told.code);
    if (!is_allowed(code, told))
      return find(
          "wrong_code", rank,
          name_of(told.code) + " after a " + std::string(to_string(plan_.deviation)) + ": " + text);
    if (!is_named_right(rank, code, told))
      find("wrong_name", rank,
           "names rank " + std::to_string(told.named) + " of the world: " + text);
    check_time(rank, told, text);
  }

  bool is_allowed(Code code, const Told& told) const {
    const Deviation d = plan_.deviation;
    if (code == Code::revoked) return true;
    // After a call too many or too few some may shut the group down before the others miss it.
    if (code == Code::peer_left)
      return d == Deviation::leave || told.forming || gave_up(told.named) ||
             (is_other_order(d) && shut_down(told.named, told.group));
    // Async calls that are left when the timeout of shutdown() passes.
    if (code == Code::destroyed && d == Deviation::leave) return told.named == plan_.culprit;
    if (code == Code::timed_out && waits_for_anybody(plan_)) return true;
    if (d == Deviation::abort || d == Deviation::leave) return false;
    if (is_other_call(d)) return code == Code::mismatch;
    if (is_other_order(d)) return code == Code::mismatch || code == Code::timed_out;
    // While exec ends its threads a process can start no more, and may still say so.
    if (code == Code::out_of_resources && d == Deviation::exec) return told.named == plan_.culprit;
    if (is_death(d))
      return code == Code::peer_died || (code == Code::link_lost && told.forming) ||
             (code == Code::timed_out && plan_.at < 0);
    return code == Code::timed_out;
  }

  // Whether that rank left a group that came together.
  bool gave_up(int rank) const {
    return rank >= 0 && of(rank).has_failure && of(rank).told.forming;
  }

  bool shut_down(int rank, int group) const {
    for (std::size_t i = 0; rank >= 0 && i < plan_.steps.size(); ++i)
      if (plan_.steps[i].kind == StepKind::leave && plan_.steps[i].group == group &&
          of(rank).steps[i].begun != 0)
        return true;
    return false;
  }

  bool is_named_right(int rank, Code code, const Told& told) const {
    const int named = told.named;
    // For who was stopped itself the others are those that did not wait.
    if (rank == plan_.culprit && plan_.deviation == Deviation::stop && told.forming) return true;
    // Who waits for anybody waits for nobody in particular.
    if (named == -1 && code == Code::timed_out &&
        std::string_view(told.text).find("from any rank") != std::string_view::npos)
      return true;
    // Who was stopped holds the lock of the file; docs/limits.md says so.
    if (named == -1 &&
        std::string_view(told.text).find("held the lock of the file") != std::string_view::npos)
      return plan_.deviation == Deviation::stop;
    if (named < 0) return false;
    const bool culprit = named == plan_.culprit;
    if (code == Code::revoked)
      return (culprit && plan_.deviation == Deviation::abort) ||
             (of(named).aborted != 0 && of(named).aborted <= told.time);
    if (culprit) return true;
    if (code == Code::peer_left) return gave_up(named) || shut_down(named, told.group);
    if (code == Code::timed_out) return is_behind(rank, named, told);
    if (code != Code::mismatch) return false;
    // Of two ranks that disagree either may be the odd one; the message tells of both.
    const int place = plan_.groups[static_cast<std::size_t>(told.group)].rank_of(plan_.culprit);
    const std::string text = std::string(told.text) + " ";
    const std::size_t at = text.find("rank " + std::to_string(place));
    return at != text.npos;
  }

  // Whether another rank was in a call of this group that the named one had not come to.
  bool is_behind(int rank, int named, const Told& told) const {
    constexpr std::int64_t kSlack = 200'000'000;
    const GroupPlan& group = plan_.groups[static_cast<std::size_t>(std::max(told.group, 0))];
    if (told.step < 0 || group.rank_of(named) < 0) return false;
    // A message waits for its peer, which may wait for that of another one.
    if (plan_.steps[static_cast<std::size_t>(told.step)].call.exchange != Exchange::collective &&
        of(named).steps[told.step].end != StepEnd::ok)
      return true;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      if (step.group != told.group || !takes_part(step, named)) continue;
      const std::int64_t came = of(named).steps[i].begun;
      if (came != 0 && came < told.time - kSlack) continue;
      for (const int other : group.members) {
        const std::int64_t begun = of(other).steps[i].begun;
        if ((other != named || rank == named) && begun != 0 && begun < told.time) return true;
      }
    }
    return false;
  }

  bool takes_part(const Step& step, int rank) const {
    if (step.kind != StepKind::form) return true;
    return plan_.groups[static_cast<std::size_t>(step.made.front())].rank_of(rank) >= 0;
  }

  void check_time(int rank, const Told& told, const std::string& text) {
    const bool waits = told.code == static_cast<int>(Code::timed_out) ||
                       plan_.deviation == Deviation::stop || is_other_order(plan_.deviation) ||
                       plan_.at < 0;
    std::int64_t since = deviated();
    if (told.step >= 0) since = std::max<std::int64_t>(since, of(rank).steps[told.step].begun);
    const std::int64_t most =
        bounds_.late_ns() + (waits ? 2 * std::int64_t{plan_.timeout.count()} * 1'000'000 : 0);
    // Who was stopped itself has no time.
    if (rank == plan_.culprit && plan_.deviation == Deviation::stop) return;
    if (told.time - since > most)
      find("late", rank,
           "after " + std::to_string((told.time - since) / 1'000'000) + " ms: " + text);
  }

  // No rank ends a call well that another one did not make.
  void check_silence(std::size_t index) {
    const Step& step = plan_.steps[index];
    const GroupPlan& group = plan_.groups[static_cast<std::size_t>(step.group)];
    for (const int rank : group.members) {
      if (of(rank).steps[index].end != StepEnd::ok) continue;
      if (is_other_call(plan_.deviation) && deviated() != 0 &&
          static_cast<int>(index) == plan_.at && group.size() > 1)
        find("silent", rank,
             "step " + std::to_string(index) + " went through, though rank " +
                 std::to_string(plan_.culprit) + " made another call: " + describe(step));
      for (const int peer : group.members)
        if (peer != rank && of(peer).steps[index].begun == 0 &&
            needs(step, group.rank_of(rank), group.rank_of(peer), group.size()))
          find("silent", rank,
               "step " + std::to_string(index) + " went through without rank " +
                   std::to_string(peer) + ": " + describe(step));
    }
  }

  // A broken group has one cause, on all its ranks.
  void check_agreement(std::size_t group) {
    int first = -1;
    for (const int rank : plan_.groups[group].members) {
      if (ends_.gone[static_cast<std::size_t>(rank)]) continue;
      const Broken& mine = of(rank).broken[group];
      if (mine.code < 0 || mine.code == static_cast<int>(Code::destroyed)) continue;
      if (first < 0) first = rank;
      const Broken& theirs = of(first).broken[group];
      if (mine.code != theirs.code || mine.named != theirs.named)
        find("disagreement", rank,
             "group " + std::to_string(group) + " is broken by " + name_of(mine.code) +
                 " of rank " + std::to_string(mine.named) + ", on rank " + std::to_string(first) +
                 " by " + name_of(theirs.code) + " of rank " + std::to_string(theirs.named));
    }
  }

  const Plan& plan_;
  const Board& board_;
  const Ends& ends_;
  const Bounds& bounds_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> judge(const Plan& plan, const Board& board, const Ends& ends,
                           const Bounds& bounds) {
  return Judge(plan, board, ends, bounds).run();
}

std::string places(const Plan& plan, const Board& board) {
  std::string text;
  const std::int64_t now = steady_now();
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const RankBoard& mine = board.ranks[rank];
    constexpr const char* kStates[] = {"away", "idle", "running", "settled", "done"};
    text += "    rank " + std::to_string(rank) + " (pid " + std::to_string(mine.pid) + ") " +
            kStates[static_cast<int>(mine.state.load())];
    for (int i = static_cast<int>(plan.steps.size()) - 1; i >= 0; --i) {
      const StepLog& log = mine.steps[i];
      if (log.begun == 0) continue;
      text += ", step " + std::to_string(i) + " " + (log.ended == 0 ? "since " : "begun, ended, ") +
              std::to_string((now - log.begun) / 1'000'000) +
              " ms: " + describe(plan.steps[static_cast<std::size_t>(i)]);
      break;
    }
    if (mine.deviated != 0)
      text += ", deviated " + std::to_string((now - mine.deviated) / 1'000'000) + " ms ago";
    if (mine.has_failure) text += ", told: " + std::string(mine.told.text);
    if (mine.recovery[0] != 0) text += ", recovery: " + std::string(mine.recovery);
    text += "\n";
  }
  return text;
}

}  // namespace c10d::chaos
