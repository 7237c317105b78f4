// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/hash.h"
#include "tests/model/clock.h"

// Where the explorer's threads and their memory are between two steps.
namespace c10d::model {

inline constexpr int kNobody = -1;

inline void join(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

struct WordState {
  std::uint64_t value = 0;
  Clock clock{};  // what who reads it with acquire knows of
};
struct CellState {
  std::uint64_t value = 0;
  int writer = kNobody;
  std::uint8_t written = 0;  // the writer's own time
  Clock read{};              // every thread's own time at its last read
};
struct Buffered {
  int word;
  std::uint64_t value;
  Clock clock;
};
struct ThreadState {
  Clock clock{};
  std::vector<std::uint64_t> results;  // of its steps so far
  std::vector<std::size_t> parts;      // where those began that are not over
  std::vector<Buffered> buffer;
  int asleep = kNobody;  // on this word
  bool woken = false;
  bool dead = false;
  bool over = false;
  bool used_cells = false;  // at its present time
};
struct State {
  std::vector<WordState> words;
  std::vector<CellState> cells;
  std::vector<ThreadState> threads;
  int deaths = 0;
  bool broken = false;
};

class Hash {
 public:
  void add(std::uint64_t value) {
    low_ = mix(low_, value);
    high_ = (high_ + value) * 0xbf58476d1ce4e5b9u;
    high_ ^= high_ >> 32;
  }
  void add(const Clock& clock) {
    add(std::uint64_t{clock[0]} | std::uint64_t{clock[1]} << 8 | std::uint64_t{clock[2]} << 16);
  }
  std::uint64_t value() const { return low_ ^ (high_ << 1 | high_ >> 63); }

 private:
  std::uint64_t low_ = 1, high_ = 2;
};

inline std::uint64_t hash_of(const State& state) {
  Hash hash;
  for (const WordState& word : state.words) {
    hash.add(word.value);
    hash.add(word.clock);
  }
  for (const CellState& cell : state.cells) {
    hash.add(cell.value);
    hash.add(static_cast<std::uint64_t>(cell.writer) << 8 | cell.written);
    hash.add(cell.read);
  }
  for (const ThreadState& thread : state.threads) {
    hash.add(thread.clock);
    hash.add(thread.results.size());
    for (const std::uint64_t result : thread.results) hash.add(result);
    hash.add(thread.buffer.size());
    for (const Buffered& store : thread.buffer) {
      hash.add(static_cast<std::uint64_t>(store.word));
      hash.add(store.value);
      hash.add(store.clock);
    }
    hash.add(static_cast<std::uint64_t>(thread.asleep));
    hash.add(std::uint64_t{thread.woken} | std::uint64_t{thread.dead} << 1 |
             std::uint64_t{thread.over} << 2 | std::uint64_t{thread.used_cells} << 3);
  }
  hash.add(static_cast<std::uint64_t>(state.deaths) << 1 | (state.broken ? 1u : 0u));
  return hash.value();
}

}  // namespace c10d::model
