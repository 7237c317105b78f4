// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

#include "src/sync/wait.h"

// How ranks enter a call, or a barrier, together or not at all: else those inside wait for the
// others in a library that knows no deadline. Here in shared memory; over several hosts see
// src/control/dissemination.h. Written once over what lies below, as flags.h is: production works
// on shared memory, tests/model on words that know every order in which ranks may run. A change to
// an order of operations here changes what the model checks.
//
// A rank that failed in a call enters no later one: the group is broken then, and nobody announces
// anything in a broken group. So a rank that announces a call has entered all calls before it.
namespace c10d { inline namespace v0 {

// What came of it for one rank. After all but the first the group is broken, once it is said why.
enum class Entry : std::uint8_t {
  goes,      // all ranks go in
  broken,    // the group is
  late,      // the deadline passed: this rank gave up, and says so
  left,      // a peer left the group before: this rank gave up, and says so
  given_up,  // another rank did, and is about to say why
};

// Where it is decided whether all ranks go into a call or none does. Lies in zeroed memory that
// ranks share; calls, or the rounds of a barrier, are numbered from 1.
template <class Memory>
struct BasicGate {
  typename Memory::template Atomic<std::uint64_t> abandoned;  // the last that some rank gave up
  typename Memory::template Atomic<std::uint64_t> decided;    // 2 * sequence + whether all go

  // The first decision on a call holds, whichever rank makes it. A rank that decides on a later
  // call has entered this one.
  bool decide(std::uint64_t sequence, bool go) noexcept {
    const std::uint64_t no = 2 * sequence;
    std::uint64_t seen = decided.load(std::memory_order_acquire);
    while (seen < no)
      if (decided.compare_exchange_strong(seen, no + (go ? 1 : 0), std::memory_order_seq_cst))
        return go;
    return seen != no;
  }
};

// `Ranks` is one rank's view of a call, or of a round: rank(), size(), broken(), gate(), ring(),
// which wakes the ranks that wait for this one, wait(peer, ready), as wait_until(), and gone(rank),
// the word with the last call that a rank went into.

// A rank that goes says so and then looks whether one gave up; one that gives up says so and then
// looks whether one went: at least one of the two sees the other, and then the first of them
// decides.
template <class Ranks>
bool goes(Ranks& ranks, std::uint64_t sequence) {
  ranks.gone(ranks.rank()).store(sequence, std::memory_order_seq_cst);
  return ranks.gate().abandoned.load(std::memory_order_seq_cst) < sequence ||
         ranks.gate().decide(sequence, true);
}

template <class Ranks>
bool gives_up(Ranks& ranks, std::uint64_t sequence) {
  auto& abandoned = ranks.gate().abandoned;
  std::uint64_t last = abandoned.load(std::memory_order_seq_cst);
  while (last < sequence &&
         !abandoned.compare_exchange_strong(last, sequence, std::memory_order_seq_cst)) {
  }
  bool went = false;
  for (int peer = 0; peer < ranks.size(); ++peer)
    went = went || ranks.gone(peer).load(std::memory_order_seq_cst) >= sequence;
  return !ranks.gate().decide(sequence, went);
}

// Of calls: slot(rank), with the words `sequence` and `compared`, is used by turns of two calls;
// write_call() fills the rest of the own one. A rank that has announced a call must enter it.
template <class Ranks>
bool announce_call(Ranks& ranks, std::uint64_t sequence) {
  auto& announced = ranks.slot(ranks.rank()).sequence;
  if (announced.load(std::memory_order_relaxed) == sequence) return true;
  if (ranks.broken()) return false;
  ranks.write_call();
  announced.store(sequence, std::memory_order_release);
  return true;
}

template <class Ranks, class Word>
WaitResult wait_for_all(Ranks& ranks, std::uint64_t sequence, const Word& word_of) {
  for (int i = 1; i < ranks.size(); ++i) {
    const int peer = (ranks.rank() + i) % ranks.size();
    const auto& theirs = word_of(ranks.slot(peer));
    const WaitResult result = ranks.wait(
        peer, [&]() noexcept { return theirs.load(std::memory_order_acquire) == sequence; });
    if (result != WaitResult::ready) return result;
  }
  return WaitResult::ready;
}

// matches(peer) breaks the group unless the peer's call is the same.
template <class Ranks>
Entry enter_call(Ranks& ranks, std::uint64_t sequence, bool compares_counts) {
  // The doorbell is rung by a wait that takes long, else once the others' calls were looked at:
  // right after the store it would hold that look up for as long as our cache line travels.
  if (!announce_call(ranks, sequence)) return Entry::broken;
  WaitResult result = wait_for_all(
      ranks, sequence, [](auto& slot) -> auto& { return slot.sequence; });
  if (result == WaitResult::ready) {
    for (int i = 1; i < ranks.size(); ++i) {
      if (ranks.matches((ranks.rank() + i) % ranks.size())) continue;
      ranks.ring();
      return Entry::broken;
    }
    if (compares_counts) {
      ranks.slot(ranks.rank()).compared.store(sequence, std::memory_order_release);
      ranks.ring();
      result = wait_for_all(
          ranks, sequence, [](auto& slot) -> auto& { return slot.compared; });
    }
  }
  ranks.ring();
  // A call that agrees goes through even if the group broke meanwhile: the op itself decides.
  if (result == WaitResult::ready ? goes(ranks, sequence) : !gives_up(ranks, sequence))
    return Entry::goes;
  if (result == WaitResult::broken) return Entry::broken;
  return result == WaitResult::ready ? Entry::given_up : Entry::late;
}

// came(rank) is the word with the last round that a rank has come to, has_left(rank) whether it
// comes to no more. `missing` becomes the first rank that did not arrive.
template <class Ranks>
Entry enter_barrier(Ranks& ranks, std::uint64_t round, int& missing) {
  if (ranks.broken()) return Entry::broken;
  ranks.came(ranks.rank()).store(round, std::memory_order_release);
  ranks.ring();
  WaitResult result = WaitResult::ready;
  for (missing = 0; missing < ranks.size(); ++missing) {
    const auto came = [&] { return ranks.came(missing).load(std::memory_order_acquire) >= round; };
    result = ranks.wait(missing, [&] {
      const bool left = ranks.has_left(missing);  // first: a rank may arrive and then leave
      return came() || left;
    });
    if (!came()) break;
  }
  const bool all = missing == ranks.size();
  if (all ? goes(ranks, round) : !gives_up(ranks, round)) return Entry::goes;
  if (result == WaitResult::broken) return Entry::broken;
  if (all) return Entry::given_up;
  return result == WaitResult::ready ? Entry::left : Entry::late;
}

}}  // namespace c10d::v0
