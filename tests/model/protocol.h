// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/backends/native/collectives/staged_steps.h"
#include "src/sync/flags.h"
#include "tests/model/explorer.h"

namespace c10d::model {

using native::Flow;
using native::Progress;

// What is wrong on purpose in the rounds below.
struct Fault {
  bool no_exit_sync = false;
  bool one_parity = false;
  int missing_slots = 0;
  bool no_ring = false;
  bool no_last_ring = false;
  bool no_failure_check = false;
  bool no_free_line = false;
  bool no_clearing = false;
  bool tells_rarely = false;
  bool only_here = false;
  bool frees_early = false;
};

inline constexpr std::size_t kModelSlots = 2;
inline constexpr std::size_t kMostSlots = 3;
// Epochs wrap in the fourth collective.
inline constexpr std::uint32_t kFirstEpoch = 0xfffffffd;

// A mutant must be found.
inline void expect_found(const Verdict& verdict, const char* text) {
  EXPECT_NE(verdict.problem, "");
  EXPECT_NE(verdict.problem.find(text), std::string::npos) << '"' << verdict.problem << '"';
}

// What ranks share, as native::RankLines and staging.
struct Lines {
  BasicDoorbell<Memory> doorbell;
  BasicEntry<Memory> entries[2];
  using Steps = BasicSteps<Memory>;
  // As Team::join() leaves them.
  Steps staged{Word<std::uint64_t>(Steps::value(kFirstEpoch, 0))};
  Steps reduced{Word<std::uint64_t>(Steps::value(kFirstEpoch, 0))};
  Steps consumed{Word<std::uint64_t>(Steps::value(kFirstEpoch, 0))};
  Cell<std::uint64_t> staging[2][kMostSlots];
  Cell<std::uint64_t> input, output;  // registered memory
};

// As wait_until(): looks, rings its own doorbell, sleeps.
template <class Ready, class Ring>
bool sleep_until(BasicDoorbell<Memory>& doorbell, Ready ready, Ring ring_own) {
  const Part seen = begin();
  if (seen == Part::over) return !stopped();
  bool over = false;
  if (!sleeps()) {
    if (!ready()) return block() && false;
    end();
    return !stopped();
  }
  if (seen == Part::first) {
    over = ready();
    if (!over) ring_own();
  }
  while (!over) {
    if (broken() || stopped()) return false;
    over = doorbell.sleep(ready, [] { return broken(); });
    if (!over) again();
  }
  end();
  return !stopped();
}

// Looks until `ready()`, also in a broken group.
template <class Ready>
bool spin_until(Ready ready) {
  if (begin() == Part::over) return !stopped();
  while (!ready()) {
    if (stopped()) return false;
    again();
  }
  end();
  return !stopped();
}

// native::Collective in the model: the same calls in the same order around the same flags.
// Doorbells are rung late, as with a CPU per rank: that is the harder case.
class ModelCollective {
 public:
  static constexpr int kEveryRank = -1;

  ModelCollective(std::vector<Lines>& lines, int rank, std::uint32_t epoch, const Fault& fault)
      : lines_(lines), rank_(rank), epoch_(epoch), fault_(fault) {}

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(lines_.size()); }
  int peer(int i) const { return (rank_ + i) % size(); }
  bool entered() const { return entered_; }
  Lines& lines(int rank) const { return lines_[static_cast<std::size_t>(rank)]; }
  Cell<std::uint64_t>& slot(int rank, std::size_t step) const {
    const std::size_t slots = slots_ - static_cast<std::size_t>(fault_.missing_slots);
    return lines(rank).staging[parity()][step % slots];
  }

  bool enter() {
    lines(rank_).entries[parity()].announce(epoch_, 0, epoch_);
    const auto announced = [&](int rank) {
      return lines(rank).entries[parity()].announced(epoch_);
    };
    if (!await_peers(announced)) return false;
    for (int i = 1; i < size(); ++i)
      if (lines(peer(i)).entries[parity()].signature != epoch_ && !stopped())
        problem("an entry of another call");
    ring();
    return entered_ = true;
  }
  using Counter = Progress::Steps Progress::*;
  void publish(Counter counter, std::size_t steps) {
    at(rank_, counter).publish(epoch_, steps);
    if (direct_)
      ring();
    else
      ring_pending_ = true;
  }
  void finish() {
    if (ring_pending_ && !fault_.no_last_ring) ring();
  }
  bool await(int peer, Counter counter, std::size_t steps) {
    return await(peer, [&] { return at(peer, counter).passed(epoch_, steps); });
  }
  bool await_all(Counter counter, std::size_t steps) {
    return await_peers([&](int rank) { return at(rank, counter).passed(epoch_, steps); });
  }
  bool await_staged(int peer, std::size_t step) {
    return step == 0 || await(peer, &Progress::staged, step + 1);
  }
  bool await_all_staged(std::size_t step) {
    return step == 0 || await_all(&Progress::staged, step + 1);
  }
  void be_direct() { direct_ = true; }
  void use_slots(std::size_t slots) { slots_ = slots; }
  bool await_free(std::size_t step, int reader, Counter counter = &Progress::consumed) {
    const std::size_t steps = steps_before_reuse(step, slots_);
    if (steps == 0 || reader == rank_) return true;
    return reader == kEveryRank ? await_all(counter, steps) : await(reader, counter, steps);
  }
  template <class Ready>
  bool await(int peer, Ready ready) {
    return sleep_until(lines(peer).doorbell, ready, [this] { ring(); });
  }

  // First for ranks on this one's CPU. Here even ranks share one, and so do odd ones.
  template <class Ready>
  bool await_peers(Ready ready) {
    for (const bool only_here : {true, false})
      for (int i = 1; i < size(); ++i) {
        const int other = peer(i);
        if ((only_here || fault_.only_here) && other % 2 != rank_ % 2) continue;
        if (!await(other, [&] { return ready(other); })) return false;
      }
    return true;
  }

 private:
  unsigned parity() const { return fault_.one_parity ? 0 : parity_of(epoch_); }
  BasicSteps<Memory>& at(int rank, Counter counter) const {
    Lines& of = lines(rank);
    return counter == &Progress::staged    ? of.staged
           : counter == &Progress::reduced ? of.reduced
                                           : of.consumed;
  }
  void ring() {
    if (!sleeps() || fault_.no_ring || begin() == Part::over) return;
    lines(rank_).doorbell.ring();
    end();
  }

  std::vector<Lines>& lines_;
  const int rank_;
  const std::uint32_t epoch_;
  const Fault& fault_;
  std::size_t slots_ = kModelSlots;
  bool entered_ = false;
  bool direct_ = false;
  bool ring_pending_ = false;
};

}  // namespace c10d::model
