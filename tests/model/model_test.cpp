// SPDX-License-Identifier: BSD-3-Clause
// The flag protocol of src/sync/flags.h in every order of events, whole and broken on purpose.
#include <gtest/gtest.h>

#include "tests/model/protocol.h"

namespace c10d::model { namespace {

constexpr std::uint32_t kEpoch = kFirstEpoch;

std::uint64_t datum(int rank, std::uint32_t epoch, std::size_t step = 0) {
  return 1 + static_cast<std::uint64_t>(rank) + 10 * static_cast<std::uint32_t>(epoch - kEpoch) +
         100 * step;
}

void expect_datum(const Cell<std::uint64_t>& cell, std::uint64_t expected) {
  const std::uint64_t value = cell;
  if (!stopped() && value != expected)
    problem("read " + std::to_string(value) + " instead of " + std::to_string(expected));
}

// Staged before the entry, read after it, the next op at once: no wait at the end of any.
bool one_shot(ModelRound& round, std::uint32_t epoch) {
  const auto slot_of = [&](int rank) -> auto& {
    return round.slot(native::place_of(rank, round.size(), epoch), 0);
  };
  slot_of(round.rank()) = datum(round.rank(), epoch);
  if (!round.enter()) return false;
  for (int i = 1; i < round.size(); ++i)
    expect_datum(slot_of(round.peer(i)), datum(round.peer(i), epoch));
  return true;
}

// More steps than slots, as in src/backends/native/collectives/staged_steps.h; from all to all, or
// from one root.
bool in_steps(ModelRound& round, std::uint32_t epoch, std::size_t steps, int root) {
  const bool every = root == ModelRound::kEveryRank;
  const Flow flow{.steps = steps,
                  .stages = every || round.rank() == root,
                  .takes = every || round.rank() != root};
  const auto stage = [&](std::size_t step) {
    round.slot(round.rank(), step) = datum(round.rank(), epoch, step);
  };
  const auto take = [&](std::size_t step) {
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      if (!every && peer != root) continue;
      if (!round.await_staged(peer, step)) return false;
      expect_datum(round.slot(peer, step), datum(peer, epoch, step));
    }
    return true;
  };
  return native::run_steps(round, flow, stage, take);
}

// As native::two_shot(): each rank reduces a slice of the next one's slot where it lies; some ranks
// collect, from their own slots, or all of them from all.
bool two_shots(ModelRound& round, std::uint32_t epoch, std::size_t steps, int root,
               bool shared = false, const Fault& fault = {}) {
  round.use_slots(kMostSlots);
  constexpr std::uint64_t kReduced = 100'000;
  const auto stage = [&](std::size_t step) {
    round.slot(round.rank(), step) = datum(round.rank(), epoch, step);
  };
  const auto reduce = [&](std::size_t step) {
    const int next = round.peer(1);
    auto& slot = round.slot(next, step);
    expect_datum(slot, datum(next, epoch, step));
    slot = kReduced + datum(next, epoch, step);
  };
  const auto collect = [&](std::size_t step) {
    for (int i = 0; i < (shared ? round.size() : 1); ++i)
      expect_datum(round.slot(round.peer(i), step), kReduced + datum(round.peer(i), epoch, step));
  };
  const bool collects = root == ModelRound::kEveryRank || root == round.rank();
  return native::run_two_shots(round, steps, collects, shared && !fault.frees_early, stage, reduce,
                               collect);
}

// As native::exchange(): each of two ranks takes out of the other's slot, then puts in its own.
bool exchanged(ModelRound& round, std::uint32_t epoch) {
  constexpr std::size_t kSteps = 5;
  const auto slot_of = [&](int rank, std::size_t step) -> auto& {
    const int place = native::place_of(rank, round.size(), epoch);
    return round.slot(native::exchange_place(place, step, kModelSlots), step);
  };
  const auto stage = [&](std::size_t step) {
    slot_of(round.rank(), step) = datum(round.rank(), epoch, step);
  };
  const auto take = [&](std::size_t step) {
    auto& slot = slot_of(round.peer(1), step);
    expect_datum(slot, datum(round.peer(1), epoch, step));
    const std::size_t next = step + kModelSlots;
    if (next < kSteps) slot = datum(round.rank(), epoch, next);
  };
  return native::run_exchange(round, kSteps, kModelSlots, stage, take);
}

// Registered memory: everybody reads all inputs and writes all outputs, then uses both again.
bool direct(ModelRound& round, std::uint32_t epoch, const Fault& fault) {
  Lines& own = round.lines(round.rank());
  own.input = datum(round.rank(), epoch);
  if (!round.enter()) return false;
  round.be_direct();
  const int next = round.peer(1);
  expect_datum(round.lines(next).input, datum(next, epoch));
  round.lines(next).output = datum(next, epoch);
  round.publish(&Progress::reduced, 1);
  if (!fault.no_exit_sync && !round.await_all(&Progress::reduced, 1)) return false;
  expect_datum(own.output, datum(round.rank(), epoch));
  return true;
}

// The same, when rank 1 gives up in the middle: see Round::finish().
bool abandoned(ModelRound& round, std::uint32_t epoch, const Fault& fault) {
  const bool entered = round.enter();
  if (round.rank() == 1) {
    give_up();
    round.publish(&Progress::consumed, 1);
    const auto is_out = [&] { return round.lines(0).consumed.passed(epoch, 1); };
    if (!fault.no_exit_sync && !spin_until(is_out)) return false;
    if (!stopped()) round.lines(1).output = datum(1, epoch);
    return true;
  }
  if (entered && !broken() && !stopped()) round.lines(1).output = datum(0, epoch);
  round.publish(&Progress::consumed, 1);
  return entered;
}

template <class Op>
Verdict run(Settings settings, const Fault& fault, std::uint32_t epochs, Op op) {
  std::vector<Lines> lines(static_cast<std::size_t>(settings.threads));
  return explore(settings, [&](int rank) {
    for (std::uint32_t i = 0; i < epochs; ++i) {
      if (begin() == Part::over) continue;
      ModelRound round(lines, rank, kEpoch + i, fault);
      if (!op(round, kEpoch + i)) return false;
      round.finish();
      end();
    }
    return true;
  });
}

struct Case {
  const char* name;
  int ranks;
  int deaths;
};
class Model : public testing::TestWithParam<Case> {
 protected:
  int ranks() const { return GetParam().ranks; }
  // Without bells, which have a test of their own: they double what can happen at every wait.
  Settings sleepless() const {
    return {.threads = ranks(), .deaths = GetParam().deaths, .sleeps = false};
  }
  void expect_whole(const Verdict& verdict) {
    EXPECT_EQ(verdict.problem, "");
    EXPECT_GT(verdict.states, 50u);
  }
};

TEST_P(Model, OneShotNeedsNoWaitAtTheEnd) { expect_whole(run(sleepless(), {}, 5, one_shot)); }

// Three ranks of which one may die: see ARootRunsAhead.
TEST_P(Model, StepsUseSlotsAgain) {
  const bool many = ranks() == 3 && GetParam().deaths != 0;
  expect_whole(run(sleepless(), {}, ranks() == 2 ? 2 : 1, [&](auto& round, auto epoch) {
    return in_steps(round, epoch, ranks() == 2 ? 4 : 3, many ? 1 : ModelRound::kEveryRank);
  }));
}

TEST_P(Model, SlicesAreReducedWhereTheyLie) {
  const bool two = ranks() == 2;
  const bool deaths = GetParam().deaths != 0;
  const std::size_t steps = two ? (deaths ? 4 : 5) : (deaths ? 1 : 2);
  for (const int root : {ModelRound::kEveryRank, 0})
    expect_whole(run(sleepless(), {}, two && !deaths ? 2 : 1, [&](auto& round, auto epoch) {
      return two_shots(round, epoch, steps, root);
    }));
}

TEST_P(Model, SlicesAreCollectedFromSharedSlots) {
  const bool two = ranks() == 2;
  const bool deaths = GetParam().deaths != 0;
  const std::size_t steps = two ? (deaths ? 4 : 5) : (deaths ? 1 : 2);
  expect_whole(run(sleepless(), {}, two && !deaths ? 2 : 1, [&](auto& round, auto epoch) {
    return two_shots(round, epoch, steps, ModelRound::kEveryRank, true);
  }));
}

TEST_P(Model, ARootRunsAhead) {
  expect_whole(run(sleepless(), {}, 3, [&](auto& round, auto epoch) {
    return epoch == kEpoch + 1 ? one_shot(round, epoch) : in_steps(round, epoch, 3, 0);
  }));
}

TEST_P(Model, RegisteredMemoryIsFreeAfterTheExit) {
  expect_whole(
      run(sleepless(), {}, 3, [](auto& round, auto epoch) { return direct(round, epoch, {}); }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Model,
                         testing::Values(Case{"Two", 2, 0}, Case{"TwoOneDies", 2, 1},
                                         Case{"Three", 3, 0}, Case{"ThreeOneDies", 3, 1}),
                         [](const auto& of) { return std::string(of.param.name); });

// The first and the third use the same half of the staging.
TEST(Exchange, NeedsNoWaitForFreeSlots) {
  struct Turns {
    bool exchanged[3];
  };
  for (const Turns& turns : {Turns{{true, false, true}}, Turns{{true, false, false}},
                             Turns{{false, false, true}}, Turns{{false, true, true}}})
    for (const int deaths : {0, 1}) {
      const Verdict verdict =
          run({.deaths = deaths, .sleeps = false}, {}, 3, [&](auto& round, auto epoch) {
            return turns.exchanged[epoch - kEpoch] ? exchanged(round, epoch)
                                                   : one_shot(round, epoch);
          });
      EXPECT_EQ(verdict.problem, "");
      EXPECT_GT(verdict.states, 50u);
    }
}

TEST(GivingUp, LeavesNobodyWhoWritesBehind) {
  const auto run_abandoned = [](const Fault& fault) {
    return run({.gives_up = true, .sleeps = false}, fault, 1,
               [&](auto& round, auto epoch) { return abandoned(round, epoch, fault); });
  };
  const Verdict whole = run_abandoned({});
  EXPECT_EQ(whole.problem, "");
  EXPECT_GT(whole.states, 20u);
  expect_found(run_abandoned({.no_exit_sync = true}), "while another may use it");
}

TEST(Doorbell, NoWakeUpIsLost) {
  for (const int deaths : {0, 1}) {
    const Verdict two = run({.threads = 2, .deaths = deaths}, {}, 2, one_shot);
    EXPECT_EQ(two.problem, "");
    EXPECT_GT(two.states, 5000u);
  }
  const Verdict three = run({.threads = 3}, {}, 1, one_shot);
  EXPECT_EQ(three.problem, "");
  EXPECT_GT(three.states, 50000u);
}

// Flags of steps are rung for by the next slow wait, or at the end.
bool two_steps(ModelRound& round, std::uint32_t epoch) {
  return in_steps(round, epoch, 2, ModelRound::kEveryRank);
}

TEST(Doorbell, NoWakeUpOfAStepIsLost) {
  const Verdict verdict = run({.threads = 2}, {}, 1, two_steps);
  EXPECT_EQ(verdict.problem, "");
  EXPECT_GT(verdict.states, 5000u);
}

// Mutants: each must be found.
TEST(Mutant, ADroppedReleaseIsARace) {
  for (const int ranks : {2, 3})
    expect_found(run({.threads = ranks, .mutant = {.drops_release = true}}, {}, 1, one_shot),
                 "may write it");
}

TEST(Mutant, AMissingExitSyncIsARace) {
  const Fault fault{.no_exit_sync = true};
  expect_found(
      run({}, fault, 2, [&](auto& round, auto epoch) { return direct(round, epoch, fault); }),
      "cell");
}

TEST(Mutant, OneParityIsARace) {
  expect_found(run({}, {.one_parity = true}, 3, one_shot), "while");
}

TEST(Mutant, WaitingForOneCpuOnlyReadsOldEntries) {
  for (const int ranks : {2, 3})
    expect_found(run({.threads = ranks, .sleeps = false}, {.only_here = true}, 1, one_shot),
                 "an entry of another call");
}

TEST(Mutant, OneSlotTooFewIsARace) {
  expect_found(run({}, {.missing_slots = 1}, 1,
                   [](auto& round, auto epoch) {
                     return in_steps(round, epoch, 3, ModelRound::kEveryRank);
                   }),
               "while");
}

TEST(Mutant, TwoSlotsAreTooFewForSlices) {
  for (const int root : {ModelRound::kEveryRank, 0})
    expect_found(run({}, {.missing_slots = 1}, 1,
                     [&](auto& round, auto epoch) { return two_shots(round, epoch, 4, root); }),
                 "reads cell");
}

TEST(Mutant, ASharedSlotIsNotFreeOnceItIsReduced) {
  const Fault fault{.frees_early = true};
  expect_found(run({.sleeps = false}, fault, 1,
                   [&](auto& round, auto epoch) {
                     return two_shots(round, epoch, 5, ModelRound::kEveryRank, true, fault);
                   }),
               "while");
}

TEST(Mutant, OneSlotTooFewForAnExchangeIsARace) {
  expect_found(run({.sleeps = false}, {.missing_slots = 1}, 1, exchanged), "while");
}

TEST(Mutant, ALostWakeUpIsAWaitForEver) {
  const char* const kForEver = "for ever";
  expect_found(run({.mutant = {.drops_wake = true}}, {}, 2, one_shot), kForEver);
  expect_found(run({}, {.no_ring = true}, 2, one_shot), kForEver);
  expect_found(run({}, {.no_last_ring = true}, 1, two_steps), kForEver);
  expect_found(run({.mutant = {.weak_read_modify = true}}, {}, 2, one_shot), kForEver);
}

}}  // namespace c10d::model
