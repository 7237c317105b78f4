// SPDX-License-Identifier: BSD-3-Clause
// src/sync/agreement.h in every order of events: ranks enter a call together or not at all, and who
// does not enter learns why.
#include "src/sync/agreement.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/protocol.h"

namespace c10d::model { namespace {

constexpr int kRanks = 3;
constexpr std::uint64_t kMostCalls = 3;

// What the ranks do: each makes all calls, or rounds of a barrier, one after the other, also once
// one has failed, as async calls do that lie in a queue. Zero: in none.
struct Job {
  std::uint64_t calls = kMostCalls;
  std::uint64_t odd = 0;         // the call that rank 0 makes otherwise than the others
  std::uint64_t bad_counts = 0;  // the all_to_all_v in which rank 0 sends rank 1 too much
  std::uint64_t impatient = 0;   // the call that rank 1 does not wait for
  std::uint64_t left = 0;        // the round before which rank 2 leaves
  int blocking = -1;             // the rank that makes no call after one that failed
  bool together = false;         // who is in a call is held there until all are
};

// What is wrong on purpose.
struct Slip {
  bool enters_broken = false;     // calls are announced also in a broken group
  bool believes_peers = false;    // and go through where a peer is about to go
  bool leaves_announced = false;  // who has announced a call does not enter once the group breaks
  bool looks_at_nobody = false;   // who gives up does not look whether one went
  bool no_witness = false;        // none of these, but nobody looks from outside
};

struct Gate : BasicGate<Memory> {
  bool decide(std::uint64_t sequence, bool go, bool believes_peers) {
    if (!believes_peers) return BasicGate::decide(sequence, go);
    const std::uint64_t no = 2 * sequence;
    std::uint64_t seen = decided.load(std::memory_order_acquire);
    while (seen < no)
      if (decided.compare_exchange_strong(seen, no + (go ? 1 : 0), std::memory_order_seq_cst))
        return go;
    return seen == no + 1 || go;
  }
};

struct Slot {
  Word<std::uint64_t> sequence, compared;
  Cell<std::uint64_t> hash;
};
struct OfRank {
  Slot calls[2];
  Word<std::uint64_t> gone, came, left, inside;
};
struct Group {
  OfRank ranks[kRanks];
  Gate gate;
  Word<std::uint64_t> nothing;
  int outcome[kMostCalls + 1];  // by call, as seen from outside

  Group() {
    for (int& word : outcome) word = new_word();
  }
};

// One rank's view of one call, and what all sorts of it have in common.
class View {
 public:
  View(Group& group, const Job& job, const Slip& slip, int rank, std::uint64_t sequence)
      : group_(group), job_(job), slip_(slip), rank_(rank), sequence_(sequence) {}
  int rank() const { return rank_; }
  int size() const { return kRanks; }

  void goes() const {
    if (!slip_.no_witness) {
      if (job_.odd == sequence_ || job_.bad_counts == sequence_)
        problem("went into a call on which ranks disagree");
      if (mark(group_.outcome[sequence_], kWent) & kGaveUp)
        problem("went into a call that another gave up");
    }
    if (!job_.together) return;
    // The library, which knows no deadline.
    of(rank_).inside.store(sequence_, std::memory_order_seq_cst);
    for (int peer = 0; peer < kRanks; ++peer)
      spin_until([&] { return of(peer).inside.load(std::memory_order_seq_cst) >= sequence_; });
  }
  void gives_up() const {
    if (!slip_.no_witness && (mark(group_.outcome[sequence_], kGaveUp) & kWent))
      problem("gave up a call that another went into");
  }

 protected:
  static constexpr std::uint64_t kWent = 1, kGaveUp = 2;
  OfRank& of(int rank) const { return group_.ranks[rank]; }
  bool is_impatient() const { return rank_ == 1 && job_.impatient == sequence_; }
  std::uint64_t hash_of(int rank) const {
    return 10 * sequence_ + (job_.odd == sequence_ && rank == 0 ? 1 : 2);
  }

  Group& group_;
  const Job& job_;
  const Slip& slip_;
  const int rank_;
  const std::uint64_t sequence_;
};

// As ShmControl.
class InMemory : public View {
 public:
  using View::View;
  Entry enter() {
    if (slip_.leaves_announced && announce_call(*this, sequence_) && model::broken())
      return Entry::broken;
    return enter_call(*this, sequence_, job_.bad_counts == sequence_);
  }

  bool broken() const { return !slip_.enters_broken && model::broken(); }
  auto& gate() { return *this; }
  Word<std::uint64_t>& abandoned = group_.gate.abandoned;
  bool decide(std::uint64_t sequence, bool go) {
    return group_.gate.decide(sequence, go, slip_.believes_peers);
  }
  Word<std::uint64_t>& gone(int rank) const {
    return slip_.looks_at_nobody && rank != rank_ ? group_.nothing : of(rank).gone;
  }
  Slot& slot(int rank) const { return of(rank).calls[sequence_ % 2]; }
  void write_call() const { slot(rank_).hash = hash_of(rank_); }
  bool matches(int peer) const {
    const bool too_much = job_.bad_counts == sequence_ && rank_ == 1 && peer == 0;
    if (slot(peer).hash == hash_of(rank_) && !too_much) return true;
    give_up();  // and says why
    return stopped();
  }
  void ring() const {}
  template <class Ready>
  WaitResult wait(int, Ready ready) const {
    if (begin() == Part::over) return static_cast<WaitResult>(outcome());
    WaitResult result = WaitResult::ready;
    while (result == WaitResult::ready && !ready() && !stopped()) {
      if (is_impatient())
        result = WaitResult::timed_out;
      else if (model::broken())
        result = WaitResult::broken;
      else
        again();
    }
    end(static_cast<std::uint64_t>(result));
    return result;
  }
};

class AtBarrier : public InMemory {
 public:
  using InMemory::InMemory;
  Entry enter() {
    int missing = 0;
    return enter_barrier(*this, sequence_, missing);
  }
  Word<std::uint64_t>& came(int rank) const { return of(rank).came; }
  bool has_left(int rank) const {
    return job_.left != 0 && of(rank).left.load(std::memory_order_acquire) != 0;
  }
};

template <class Call>
bool make_calls(Group& group, const Job& job, const Slip& slip, int rank) {
  bool failed = false;  // a call
  for (std::uint64_t sequence = 1; sequence <= job.calls; ++sequence) {
    if (begin() == Part::over) {
      failed = outcome() != 0;
      continue;
    }
    Call call(group, job, slip, rank, sequence);
    if (rank == 2 && sequence == job.left) {
      call.gives_up();
      group.ranks[rank].left.store(1, std::memory_order_seq_cst);
      return true;
    }
    const Entry entry = call.enter();
    if (stopped()) return false;
    if (entry == Entry::goes) {
      call.goes();
    } else {
      call.gives_up();
      if (entry == Entry::late || entry == Entry::left) give_up();  // and says why
      if (entry == Entry::given_up) spin_until(broken);
      if (!broken() && !stopped()) problem("gave up, and nobody says why");
      failed = true;
      if (rank == job.blocking) return false;
    }
    end(failed);
  }
  return !failed;
}

template <class Call>
Verdict run(Settings settings, const Job& job, const Slip& slip = {}) {
  settings.threads = kRanks;
  settings.gives_up = true;
  settings.max_states = 2'000'000;
  Group group;
  return explore(settings, [&](int rank) { return make_calls<Call>(group, job, slip, rank); });
}

void expect_whole(const Verdict& verdict) {
  EXPECT_EQ(verdict.problem, "");
  EXPECT_GT(verdict.states, 500u);
}

TEST(AgreementInMemory, AMismatchLetsNobodyIn) {
  for (const bool together : {false, true})
    for (const std::uint64_t odd : {0u, 1u, 2u, 3u})
      expect_whole(run<InMemory>({}, {.odd = odd, .together = together}));
  for (const std::uint64_t call : {1u, 2u}) {
    expect_whole(run<InMemory>({}, {.odd = call, .blocking = 0}));
    expect_whole(run<InMemory>({}, {.bad_counts = call}));
  }
}

TEST(AgreementInMemory, WhoGivesUpGivesUpForAll) {
  expect_whole(run<InMemory>({}, {.calls = 2, .impatient = 1}));
  expect_whole(run<InMemory>({}, {.impatient = 2, .together = true}));
}

TEST(AgreementInMemory, AFailureFromOutsideMeetsAllOrNone) {
  expect_whole(run<InMemory>({.deaths = 1}, {.calls = 2}));
  expect_whole(run<InMemory>({.deaths = 1}, {.odd = 1}));
  expect_whole(run<InMemory>({.breaks = true}, {.odd = 1}));
}

TEST(AgreementAtBarrier, AllPassOrNone) {
  expect_whole(run<AtBarrier>({}, {}));
  for (const std::uint64_t round : {1u, 2u}) {
    expect_whole(run<AtBarrier>({}, {.calls = 2, .impatient = round}));
    expect_whole(run<AtBarrier>({}, {.calls = 2, .left = round}));
  }
  expect_whole(run<AtBarrier>({}, {.calls = 2, .impatient = 2, .left = 2}));
  expect_whole(run<AtBarrier>({.deaths = 1}, {.calls = 1}));
}

// Mutants: each must be found.
constexpr const char* kSplit = "another";  // gave up, or went

// Who announces calls in a broken group comes to the gate of a later one, and its "no" there counts
// as a "go" here.
TEST(AgreementMutant, ACallAfterAFailedOneDecidesOnIt) {
  const Slip slip{.enters_broken = true};
  expect_found(run<InMemory>({}, {.calls = 2, .odd = 1}, slip), "on which ranks disagree");
  // What it writes over is what the others still read.
  expect_found(run<InMemory>({}, {.odd = 1}, slip), "reads cell");
  // And seen from the ranks: one is in the library for ever.
  const Slip alone{.enters_broken = true, .no_witness = true};
  expect_found(run<InMemory>({}, {.calls = 2, .odd = 1, .blocking = 0, .together = true}, alone),
               "for ever");
}

// It is no help to look whether a peer is about to go.
TEST(AgreementMutant, APeerThatIsAboutToGoMayNotGo) {
  expect_found(run<InMemory>({}, {.calls = 2, .impatient = 1},
                             {.enters_broken = true, .believes_peers = true}),
               kSplit);
}

TEST(AgreementMutant, WhoGivesUpMustLookForWhoWent) {
  expect_found(run<InMemory>({}, {.calls = 2, .impatient = 1}, {.looks_at_nobody = true}), kSplit);
  expect_found(run<InMemory>({.mutant = {.weak_store = true}}, {.calls = 2, .impatient = 1}),
               kSplit);
}

TEST(AgreementMutant, WhoHasAnnouncedACallMustEnterIt) {
  expect_found(run<InMemory>({.breaks = true}, {.calls = 2}, {.leaves_announced = true}), kSplit);
}

}}  // namespace c10d::model
