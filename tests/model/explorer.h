// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/clock.h"

// Runs a few small threads in every order in which they could run, and says what goes wrong in any.
//
// Threads work on the words and cells below. An atomic access is one step of a thread; between
// steps any other thread may run, a thread may die, and a store that is not sequentially consistent
// may still wait in its thread's store buffer. Happens-before is followed by vector clocks, so that
// an access to a cell that nothing orders is found whatever values come out. A sleep has no time
// limit here: a lost wake-up is a state in which nobody can go on.
//
// A thread is brought to its next step by running its body again on the results of its steps so
// far. A body must do the same for the same results, and end soon once stopped() is true.
//
// Whatever happened, all threads must be able to end without another death: who waits for ever is
// found also where threads keep looking.
namespace c10d::model {

// What is wrong on purpose.
struct Mutant {
  bool drops_release = false;     // stores order nothing
  bool drops_wake = false;        // wakes nobody
  bool weak_read_modify = false;  // read-modify-writes do not wait for the store buffer
  bool weak_fence = false;        // nor do fences
  bool weak_store = false;        // sequentially consistent stores wait in it
};

struct Settings {
  int threads = 2;
  int deaths = 0;         // how many threads may die, at any step
  bool gives_up = false;  // whether a thread may, though none dies
  bool breaks = false;    // whether the group may break by itself, at any step
  bool sleeps = true;     // false: bells do nothing, and who would sleep runs on once it may
  Mutant mutant;
  std::size_t max_states = 400'000;
};

struct Verdict {
  std::string problem;  // empty: none in any order
  std::size_t states = 0;
};

// Calls `body(thread)` for all of them, as often as it takes. A body returns whether it did what it
// should; false is right only after a death.
Verdict explore(const Settings& settings, const std::function<bool(int)>& body);

// For bodies.
bool stopped();
bool sleeps();
bool broken();   // whether a death has been noticed, or a thread gave up: one step
void give_up();  // breaks the group: one step
void problem(std::string text);
// For what a check remembers: sets bits of a word, and returns it as it was. No step.
std::uint64_t mark(int word, std::uint64_t bits);
// A part of a body: what happened between begin() and end() is forgotten once it is over, so that
// it makes no difference. Parts may lie in parts. After again() a body is at begin() once more.
enum class Part : std::uint64_t { first, woken, over };
Part begin();
void end(std::uint64_t outcome = 0);
std::uint64_t outcome();  // of the part that begin() has just found over
// The same for a loop: where a body is, and back to there.
std::size_t here();
void back_to(std::size_t place);
void again();
// One look at many words at a time: one step, so that a wait for any of them that is in vain is
// found to be. `ready` uses peek() and is_broken().
bool look(const std::function<bool()>& ready);
std::uint64_t peek(int word);
bool is_broken();
// Where bells do nothing: ends a vain look in the part. False: the group is broken, go on.
bool block();

int new_word(std::uint64_t value = 0);
int new_cell();
std::uint64_t load(int word, std::memory_order order);
void store(int word, std::uint64_t value, std::memory_order order);
// Of bells only: orders no cells, though the real one does.
std::uint64_t fetch_add(int word, std::uint64_t value, std::memory_order order);
std::uint64_t compare_exchange(int word, std::uint64_t expected, std::uint64_t value,
                               std::memory_order order);
void fence();
void sleep(int word, std::uint64_t value);
void wake(int word);
std::uint64_t read(int cell);
void write(int cell, std::uint64_t value);
// A read that the protocol allows to go wrong, as long as the result is not used. True: it did.
bool read_was_torn(int cell, std::uint64_t expected);

template <class T>
class Word {
 public:
  Word() : index_(new_word()) {}
  explicit Word(T value) : index_(new_word(value)) {}
  T load(std::memory_order order) const { return static_cast<T>(model::load(index_, order)); }
  void store(T value, std::memory_order order) { model::store(index_, value, order); }
  T fetch_add(T value, std::memory_order order) {
    return static_cast<T>(model::fetch_add(index_, value, order));
  }
  bool compare_exchange_strong(T& expected, T value, std::memory_order order) {
    const T before = static_cast<T>(model::compare_exchange(index_, expected, value, order));
    return std::exchange(expected, before) == before;
  }
  T fetch_sub(T value, std::memory_order order) { return fetch_add(static_cast<T>(-value), order); }
  T peek() const { return static_cast<T>(model::peek(index_)); }
  int index() const { return index_; }

 private:
  int index_;
};

template <class T>
class Cell {
 public:
  Cell& operator=(T value) {
    write(index_, value);
    return *this;
  }
  operator T() const { return static_cast<T>(read(index_)); }
  int index() const { return index_; }

 private:
  int index_ = new_cell();
};

// For the templates of src/sync/flags.h.
struct Memory {
  template <class T>
  using Atomic = Word<T>;
  template <class T>
  using Plain = Cell<T>;
  static void wait(Word<std::uint32_t>& word, std::uint32_t value) { sleep(word.index(), value); }
  static void wake(Word<std::uint32_t>& word) { model::wake(word.index()); }
  static void fence() { model::fence(); }
};

}  // namespace c10d::model
