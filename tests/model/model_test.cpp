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
bool one_shot(ModelCollective& collective, std::uint32_t epoch) {
  const auto slot_of = [&](int rank) -> auto& {
    return collective.slot(native::place_of(rank, collective.size(), epoch), 0);
  };
  slot_of(collective.rank()) = datum(collective.rank(), epoch);
  if (!collective.enter()) return false;
  for (int i = 1; i < collective.size(); ++i)
    expect_datum(slot_of(collective.peer(i)), datum(collective.peer(i), epoch));
  return true;
}

// More steps than slots, as in src/backends/native/collectives/staged_steps.h; from all to all, or
// from one root.
bool in_steps(ModelCollective& collective, std::uint32_t epoch, std::size_t steps, int root) {
  const bool every = root == ModelCollective::kEveryRank;
  const Flow flow{.steps = steps,
                  .stages = every || collective.rank() == root,
                  .takes = every || collective.rank() != root};
  const auto stage = [&](std::size_t step) {
    collective.slot(collective.rank(), step) = datum(collective.rank(), epoch, step);
  };
  const auto take = [&](std::size_t step) {
    for (int i = 1; i < collective.size(); ++i) {
      const int peer = collective.peer(i);
      if (!every && peer != root) continue;
      if (!collective.await_staged(peer, step)) return false;
      expect_datum(collective.slot(peer, step), datum(peer, epoch, step));
    }
    return true;
  };
  return native::run_steps(collective, flow, stage, take);
}

// As native::two_shot(): each rank reduces a slice of the next one's slot where it lies; some ranks
// collect, from their own slots, or all of them from all.
bool two_shots(ModelCollective& collective, std::uint32_t epoch, std::size_t steps, int root,
               bool shared = false, const Fault& fault = {}) {
  collective.use_slots(kMostSlots);
  constexpr std::uint64_t kReduced = 100'000;
  const auto stage = [&](std::size_t step) {
    collective.slot(collective.rank(), step) = datum(collective.rank(), epoch, step);
  };
  const auto reduce = [&](std::size_t step) {
    const int next = collective.peer(1);
    auto& slot = collective.slot(next, step);
    expect_datum(slot, datum(next, epoch, step));
    slot = kReduced + datum(next, epoch, step);
  };
  const auto collect = [&](std::size_t step) {
    for (int i = 0; i < (shared ? collective.size() : 1); ++i)
      expect_datum(collective.slot(collective.peer(i), step),
                   kReduced + datum(collective.peer(i), epoch, step));
  };
  const bool collects = root == ModelCollective::kEveryRank || root == collective.rank();
  return native::run_two_shots(collective, steps, collects, shared && !fault.frees_early, stage,
                               reduce, collect);
}

// As native::exchange(): each of two ranks takes out of the other's slot, then puts in its own.
bool exchanged(ModelCollective& collective, std::uint32_t epoch) {
  constexpr std::size_t kSteps = 5;
  const auto slot_of = [&](int rank, std::size_t step) -> auto& {
    const int place = native::place_of(rank, collective.size(), epoch);
    return collective.slot(native::exchange_place(place, step, kModelSlots), step);
  };
  const auto stage = [&](std::size_t step) {
    slot_of(collective.rank(), step) = datum(collective.rank(), epoch, step);
  };
  const auto take = [&](std::size_t step) {
    auto& slot = slot_of(collective.peer(1), step);
    expect_datum(slot, datum(collective.peer(1), epoch, step));
    const std::size_t next = step + kModelSlots;
    if (next < kSteps) slot = datum(collective.rank(), epoch, next);
  };
  return native::run_exchange(collective, kSteps, kModelSlots, stage, take);
}

// Registered memory: everybody reads all inputs and writes all outputs, then uses both again.
bool direct(ModelCollective& collective, std::uint32_t epoch, const Fault& fault) {
  Lines& own = collective.lines(collective.rank());
  own.input = datum(collective.rank(), epoch);
  if (!collective.enter()) return false;
  collective.be_direct();
  const int next = collective.peer(1);
  expect_datum(collective.lines(next).input, datum(next, epoch));
  collective.lines(next).output = datum(next, epoch);
  collective.publish(&Progress::reduced, 1);
  if (!fault.no_exit_sync && !collective.await_all(&Progress::reduced, 1)) return false;
  expect_datum(own.output, datum(collective.rank(), epoch));
  return true;
}

// The same, when rank 1 gives up in the middle: see Collective::finish().
bool abandoned(ModelCollective& collective, std::uint32_t epoch, const Fault& fault) {
  const bool entered = collective.enter();
  if (collective.rank() == 1) {
    give_up();
    collective.publish(&Progress::consumed, 1);
    const auto is_out = [&] { return collective.lines(0).consumed.passed(epoch, 1); };
    if (!fault.no_exit_sync && !spin_until(is_out)) return false;
    if (!stopped()) collective.lines(1).output = datum(1, epoch);
    return true;
  }
  if (entered && !broken() && !stopped()) collective.lines(1).output = datum(0, epoch);
  collective.publish(&Progress::consumed, 1);
  return entered;
}

template <class Op>
Verdict run(Settings settings, const Fault& fault, std::uint32_t epochs, Op op) {
  std::vector<Lines> lines(static_cast<std::size_t>(settings.threads));
  return explore(settings, [&](int rank) {
    for (std::uint32_t i = 0; i < epochs; ++i) {
      if (begin() == Part::over) continue;
      ModelCollective collective(lines, rank, kEpoch + i, fault);
      if (!op(collective, kEpoch + i)) return false;
      collective.finish();
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
  expect_whole(run(sleepless(), {}, ranks() == 2 ? 2 : 1, [&](auto& collective, auto epoch) {
    return in_steps(collective, epoch, ranks() == 2 ? 4 : 3,
                    many ? 1 : ModelCollective::kEveryRank);
  }));
}

TEST_P(Model, SlicesAreReducedWhereTheyLie) {
  const bool two = ranks() == 2;
  const bool deaths = GetParam().deaths != 0;
  const std::size_t steps = two ? (deaths ? 4 : 5) : (deaths ? 1 : 2);
  for (const int root : {ModelCollective::kEveryRank, 0})
    expect_whole(run(sleepless(), {}, two && !deaths ? 2 : 1, [&](auto& collective, auto epoch) {
      return two_shots(collective, epoch, steps, root);
    }));
}

TEST_P(Model, SlicesAreCollectedFromSharedSlots) {
  const bool two = ranks() == 2;
  const bool deaths = GetParam().deaths != 0;
  const std::size_t steps = two ? (deaths ? 4 : 5) : (deaths ? 1 : 2);
  expect_whole(run(sleepless(), {}, two && !deaths ? 2 : 1, [&](auto& collective, auto epoch) {
    return two_shots(collective, epoch, steps, ModelCollective::kEveryRank, true);
  }));
}

TEST_P(Model, ARootRunsAhead) {
  expect_whole(run(sleepless(), {}, 3, [&](auto& collective, auto epoch) {
    return epoch == kEpoch + 1 ? one_shot(collective, epoch) : in_steps(collective, epoch, 3, 0);
  }));
}

TEST_P(Model, RegisteredMemoryIsFreeAfterTheExit) {
  expect_whole(run(sleepless(), {}, 3,
                   [](auto& collective, auto epoch) { return direct(collective, epoch, {}); }));
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
          run({.deaths = deaths, .sleeps = false}, {}, 3, [&](auto& collective, auto epoch) {
            return turns.exchanged[epoch - kEpoch] ? exchanged(collective, epoch)
                                                   : one_shot(collective, epoch);
          });
      EXPECT_EQ(verdict.problem, "");
      EXPECT_GT(verdict.states, 50u);
    }
}

TEST(GivingUp, LeavesNobodyWhoWritesBehind) {
  const auto run_abandoned = [](const Fault& fault) {
    return run({.gives_up = true, .sleeps = false}, fault, 1,
               [&](auto& collective, auto epoch) { return abandoned(collective, epoch, fault); });
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
bool two_steps(ModelCollective& collective, std::uint32_t epoch) {
  return in_steps(collective, epoch, 2, ModelCollective::kEveryRank);
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
  expect_found(run({}, fault, 2,
                   [&](auto& collective, auto epoch) { return direct(collective, epoch, fault); }),
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
                   [](auto& collective, auto epoch) {
                     return in_steps(collective, epoch, 3, ModelCollective::kEveryRank);
                   }),
               "while");
}

TEST(Mutant, TwoSlotsAreTooFewForSlices) {
  for (const int root : {ModelCollective::kEveryRank, 0})
    expect_found(
        run({}, {.missing_slots = 1}, 1,
            [&](auto& collective, auto epoch) { return two_shots(collective, epoch, 4, root); }),
        "reads cell");
}

TEST(Mutant, ASharedSlotIsNotFreeOnceItIsReduced) {
  const Fault fault{.frees_early = true};
  expect_found(run({.sleeps = false}, fault, 1,
                   [&](auto& collective, auto epoch) {
                     return two_shots(collective, epoch, 5, ModelCollective::kEveryRank, true,
                                      fault);
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
