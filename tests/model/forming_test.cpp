// SPDX-License-Identifier: BSD-3-Clause
// How a group comes together, in every order of events: the parent fails at any step, a member dies
// or fails at any step, a member's patience ends at any step.
#include "src/control/forming.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/model/explorer.h"
#include "tests/model/protocol.h"

namespace c10d::model { namespace {

// What a member of the model ends with; a rank's own failure is kOwn + rank.
enum Cause : int { kNone, kParentFailed, kLate, kOwn };
enum Outcome : int { kOpen, kMet, kGivenUp };

struct Faults {
  bool joins_blindly = false;  // who has met does not look at the parent
  bool tells_store_only = false;
  bool tells_plane_only = false;
  bool tells_plane_first = false;
  bool barrier_without_gate = false;
};

// What happens beside the members.
enum class Event { none, parent_fails, patience_ends, trouble };

constexpr auto kOrder = std::memory_order_seq_cst;
using IntWord = Word<int>;

struct Shared {
  explicit Shared(int size) : came(n(size)), taken(n(size)), present(n(size)), arrived(n(size)) {}
  static std::size_t n(int size) { return static_cast<std::size_t>(size); }

  IntWord parent;   // whether it failed
  IntWord late;     // whether the patience of member 0 has ended
  IntWord trouble;  // whether members that look fail of their own
  std::vector<IntWord> came;
  IntWord outcome;  // of the rendezvous
  IntWord told;     // a cause, in the store
  IntWord offered;  // the memory, by member 0
  std::vector<IntWord> taken;
  std::vector<IntWord> present;
  IntWord plane;                 // a cause, in the control plane
  std::vector<IntWord> arrived;  // at the barrier
  IntWord gate;                  // of it: as an Outcome
  IntWord fate, cause;           // of the first member that ended
};

bool all_of(const std::vector<IntWord>& words) {
  for (const IntWord& word : words)
    if (word.load(kOrder) == 0) return false;
  return true;
}

// For waits: how it is now. Words change once, so what ended a wait is found again behind it.
bool is_set(const IntWord& word) { return word.peek() != 0; }
bool all_set(const std::vector<IntWord>& words) { return std::ranges::all_of(words, is_set); }
template <class Ready>
void await_any(Ready ready) {
  if (begin() == Part::over) return;
  while (!look(ready)) {
    if (stopped()) return;
    again();
  }
  end();
}

// What is there already, or `value`.
int first_of(IntWord& word, int value) {
  int seen = kNone;
  return word.compare_exchange_strong(seen, value, kOrder) ? value : seen;
}

class Member {
 public:
  Member(Shared& shared, int rank, const Faults& faults)
      : shared_(shared), rank_(rank), faults_(faults) {}

  // For meet().
  void come() { mine(shared_.came).store(1, kOrder); }
  int parent_failure() const {
    if (stopped()) return kParentFailed;  // so that every loop ends
    if (joining_ && faults_.joins_blindly) return kNone;
    return shared_.parent.load(kOrder) != 0 || broken() ? kParentFailed : kNone;
  }
  bool await_members() {
    await_any([this] {
      return all_set(shared_.came) || parent_has_failed() || shared_.outcome.peek() == kGivenUp ||
             (rank_ == 0 && is_set(shared_.late));
    });
    return all_of(shared_.came);
  }
  bool close() { return first_of(shared_.outcome, kMet) == kMet; }
  int given_up() const { return shared_.outcome.load(kOrder) == kGivenUp ? kLate : kNone; }
  void give_up_if_late() {
    if (rank_ == 0 && shared_.late.load(kOrder) != 0) first_of(shared_.outcome, kGivenUp);
  }

  // For join().
  int told() const { return shared_.told.load(kOrder); }
  int dead_member() const { return broken() && !faults_.joins_blindly ? kParentFailed : kNone; }
  int map() {
    joining_ = true;
    if (rank_ == 0)
      shared_.offered.store(1, kOrder);
    else if (const int cause = await([this] { return is_set(shared_.offered); }))
      return cause;
    if (shared_.trouble.load(kOrder) != 0) return kOwn + rank_;
    mine(shared_.taken).store(1, kOrder);
    mapped_ = true;
    return kNone;
  }
  int await_all() {
    mine(shared_.present).store(1, kOrder);
    if (shared_.trouble.load(kOrder) != 0) return kOwn + rank_;
    if (rank_ == 0)
      if (const int cause = await([this] {
            return std::all_of(shared_.taken.begin() + 1, shared_.taken.end(), is_set);
          }))
        return cause;
    return await([this] { return all_set(shared_.present); });
  }
  bool has_mapped() const { return mapped_ && !faults_.tells_store_only; }
  int tell_in_store(int cause) {
    if (faults_.tells_plane_first && mapped_) cause = first_of(shared_.plane, cause);
    return faults_.tells_plane_only && mapped_ ? cause : first_of(shared_.told, cause);
  }
  int tell_in_plane(int cause) { return first_of(shared_.plane, cause); }

  // As Control::barrier(): all pass or none. A death is seen by the control plane's monitor.
  int barrier() {
    mine(shared_.arrived).store(1, kOrder);
    await_any([this] { return all_set(shared_.arrived) || plane_has_failed(); });
    const bool all = all_of(shared_.arrived);
    if (faults_.barrier_without_gate && plane_failure()) return plane_failure();
    if (first_of(shared_.gate, all ? kMet : kGivenUp) == kMet) return kNone;
    await_any([this] { return plane_has_failed(); });
    return plane_failure();
  }

 private:
  IntWord& mine(std::vector<IntWord>& words) const {
    return words[static_cast<std::size_t>(rank_)];
  }
  bool parent_has_failed() const {
    return !(joining_ && faults_.joins_blindly) && (is_set(shared_.parent) || is_broken());
  }
  bool plane_has_failed() const { return is_set(shared_.plane) || is_broken(); }
  int plane_failure() const {
    if (const int cause = shared_.plane.load(kOrder)) return cause;
    return broken() ? first_of(shared_.plane, kParentFailed) : kNone;
  }
  // Null once `ready()`, also if there is a cause by then.
  template <class Ready>
  int await(Ready ready) {
    await_any([&] {
      return ready() || is_set(shared_.told) || parent_has_failed() ||
             (mapped_ && is_set(shared_.plane));
    });
    if (look(ready)) return kNone;
    const int cause = mapped_ ? shared_.plane.load(kOrder) : kNone;
    return cause ? cause : why_in_vain(*this);
  }

  Shared& shared_;
  const int rank_;
  const Faults& faults_;
  bool joining_ = false;
  bool mapped_ = false;
};

// Makes a group; all members must end with the same.
void form(Shared& shared, int rank, const Faults& faults, Event event) {
  Member member(shared, rank, faults);
  int cause = meet(member);
  if (!cause && !stopped()) cause = join(member);
  if (!cause && !stopped()) cause = member.barrier();
  if (stopped()) return;
  const int fate = cause ? kGivenUp : kMet;
  if (first_of(shared.fate, fate) != fate) problem("one member has the group, another a failure");
  if (cause && first_of(shared.cause, cause) != cause) problem("two members have two causes");
  if (event == Event::none && cause && !broken()) problem("a failure of nothing");
  // A program that learned it ends.
  if (event == Event::patience_ends && cause) shared.parent.store(1, kOrder);
}

void happen(Shared& shared, Event event) {
  if (event == Event::parent_fails) shared.parent.store(1, kOrder);
  if (event == Event::patience_ends) shared.late.store(1, kOrder);
  if (event == Event::trouble) shared.trouble.store(1, kOrder);
}

// `members` of them and, for an event, one thread more.
Verdict run_forming(int members, Event event, const Faults& faults = {}, int deaths = 0) {
  Shared shared(members);
  const Settings settings{.threads = members + (event == Event::none ? 0 : 1),
                          .deaths = deaths,
                          .sleeps = false,
                          .max_states = 8'000'000};
  return explore(settings, [&](int thread) {
    if (thread == members)
      happen(shared, event);
    else
      form(shared, thread, faults, event);
    return true;
  });
}

TEST(Forming, AParentThatFailsAtAnyStepEndsItForAll) {
  const Verdict verdict = run_forming(2, Event::parent_fails);
  EXPECT_EQ(verdict.problem, "");
  EXPECT_GT(verdict.states, 1000u);
}

TEST(Forming, AMemberThatDiesAtAnyStepEndsItForAll) {
  for (const int members : {2, 3})
    for (const int deaths : {0, 1}) {
      const Verdict verdict = run_forming(members, Event::none, {}, deaths);
      EXPECT_EQ(verdict.problem, "") << members;
      EXPECT_GT(verdict.states, 100u);
    }
}

TEST(Forming, MembersThatFailAtAnyStepAreToldOneCause) {
  EXPECT_EQ(run_forming(2, Event::trouble).problem, "");
}

TEST(Forming, WhoGivesUpTheMeetingGivesItUpForAll) {
  EXPECT_EQ(run_forming(2, Event::patience_ends).problem, "");
}

TEST(Forming, MutantsAreFound) {
  const char* const kForEver = "for ever";
  expect_found(run_forming(2, Event::parent_fails, {.joins_blindly = true}), kForEver);
  expect_found(run_forming(2, Event::parent_fails, {.tells_store_only = true}), kForEver);
  const char* const kTwoCauses = "two causes";
  expect_found(run_forming(2, Event::trouble, {.tells_plane_only = true}), kTwoCauses);
  expect_found(run_forming(2, Event::trouble, {.tells_plane_first = true}), kTwoCauses);
  expect_found(run_forming(3, Event::none, {.barrier_without_gate = true}, 1), "another a failure");
}

}}  // namespace c10d::model
