// SPDX-License-Identifier: BSD-3-Clause
#include "tests/model/explorer.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace c10d::model {
namespace {

constexpr int kNobody = -1;
constexpr std::uint64_t kBellCounts = 8;  // fewer rings than that can come at one time

void join(Clock& clock, const Clock& other) {
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
    low_ = (low_ ^ value) * 0x9e3779b97f4a7c15u;
    low_ ^= low_ >> 29;
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

std::uint64_t hash_of(const State& state) {
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

// The thread that runs.
struct Machine {
  Settings settings;
  State* state = nullptr;
  int thread = 0;
  std::size_t at = 0;  // of its results
  bool may_step = false;
  bool stopped = false;
  std::string problem;

  ThreadState& self() { return state->threads[static_cast<std::size_t>(thread)]; }
  std::uint8_t& time() { return self().clock[static_cast<std::size_t>(thread)]; }
  WordState& word(int index) { return state->words[static_cast<std::size_t>(index)]; }
  CellState& cell(int index) { return state->cells[static_cast<std::size_t>(index)]; }
  void flush_one(ThreadState& of) {
    const Buffered store = of.buffer.front();
    of.buffer.erase(of.buffer.begin());
    word(store.word) = {store.value, store.clock};
  }
  void flush() {
    while (!self().buffer.empty()) flush_one(self());
  }

  // An atomic step: its result now, or as it was.
  template <class Do>
  std::uint64_t step(Do&& act) {
    if (stopped) return 0;
    auto& results = self().results;
    if (at < results.size()) return results[at++];
    if (!std::exchange(may_step, false)) {
      stopped = true;
      return 0;
    }
    const std::uint64_t result = act();
    if (stopped) return 0;
    results.push_back(result);
    ++at;
    return result;
  }
  // What needs no order of its own.
  template <class Do>
  std::uint64_t at_once(Do&& act) {
    if (stopped) return 0;
    auto& results = self().results;
    if (at < results.size()) return results[at++];
    const std::uint64_t result = act();
    results.push_back(result);
    ++at;
    return result;
  }
};

Machine* g_machine = nullptr;
std::vector<std::uint64_t> g_words;  // as they are at the start
int g_cells = 0;

bool is_release(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}
bool is_acquire(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

bool knows(const Clock& clock, int writer, std::uint8_t time) {
  return writer == kNobody || clock[static_cast<std::size_t>(writer)] >= time;
}

class Search {
 public:
  Search(const Settings& settings, const std::function<bool(int)>& body) : body_(body) {
    machine_.settings = settings;
  }

  Verdict run() {
    g_machine = &machine_;
    State first;
    for (const std::uint64_t value : g_words) first.words.push_back({value, {}});
    first.cells.resize(static_cast<std::size_t>(g_cells));
    first.threads.resize(static_cast<std::size_t>(machine_.settings.threads));
    for (std::size_t i = 0; i < first.threads.size(); ++i) first.threads[i].clock[i] = 1;
    push(std::move(first));
    while (!open_.empty() && machine_.problem.empty()) {
      const State state = std::move(open_.back());
      open_.pop_back();
      if (!expand(state)) report_stuck(state);
      if (seen_.size() > machine_.settings.max_states) machine_.problem = "too many states";
    }
    g_machine = nullptr;
    g_words.clear();
    g_cells = 0;
    return {machine_.problem, seen_.size()};
  }

 private:
  void push(State state) {
    if (seen_.insert(hash_of(state)).second) open_.push_back(std::move(state));
  }

  // False: nothing can happen any more.
  bool expand(const State& state) {
    bool any = false;
    for (int i = 0; i < machine_.settings.threads; ++i) {
      const ThreadState& thread = state.threads[static_cast<std::size_t>(i)];
      if (!thread.buffer.empty()) {
        any = true;
        State next = state;
        machine_.state = &next;
        machine_.flush_one(next.threads[static_cast<std::size_t>(i)]);
        push(std::move(next));
      }
      if (thread.dead || thread.over) continue;
      if (thread.asleep == kNobody || thread.woken || state.broken) {
        any |= advance(state, i);
      }
      if (state.deaths < machine_.settings.deaths) {
        State next = state;
        ++next.deaths;
        next.threads[static_cast<std::size_t>(i)].dead = true;
        push(std::move(next));
      }
    }
    if (state.deaths != 0 && !state.broken) {
      any = true;
      State next = state;
      next.broken = true;
      push(std::move(next));
    }
    return any;
  }

  // False: it changed nothing.
  bool advance(const State& state, int thread) {
    State next = state;
    machine_.state = &next;
    machine_.thread = thread;
    machine_.at = 0;
    machine_.may_step = true;
    machine_.stopped = false;
    const bool ok = body_(thread);
    if (!machine_.stopped) {
      machine_.self().over = true;
      if (!ok && !next.broken) model::problem("a thread failed in a group that is whole");
    }
    const bool moved = hash_of(next) != hash_of(state);
    push(std::move(next));
    return moved;
  }

  void report_stuck(const State& state) {
    for (std::size_t i = 0; i < state.threads.size(); ++i)
      if (!state.threads[i].over && !state.threads[i].dead)
        machine_.problem = "thread " + std::to_string(i) + " waits for ever";
  }

  Machine machine_;
  const std::function<bool(int)>& body_;
  std::vector<State> open_;
  std::unordered_set<std::uint64_t> seen_;
};

}  // namespace

Verdict explore(const Settings& settings, const std::function<bool(int)>& body) {
  return Search(settings, body).run();
}

int new_word(std::uint64_t value) {
  g_words.push_back(value);
  return static_cast<int>(g_words.size()) - 1;
}
int new_cell() { return g_cells++; }

bool stopped() { return g_machine->stopped; }
bool sleeps() { return g_machine->settings.sleeps; }

void problem(std::string text) {
  if (g_machine->problem.empty() && !g_machine->stopped) g_machine->problem = std::move(text);
}

bool broken() {
  Machine& machine = *g_machine;
  if (machine.settings.deaths == 0 && !machine.settings.gives_up) return false;
  return machine.step([&] { return std::uint64_t{machine.state->broken}; }) != 0;
}

bool look(const std::function<bool()>& ready) {
  return g_machine->step([&] { return std::uint64_t{ready()}; }) != 0;
}
std::uint64_t peek(int word) { return g_machine->word(word).value; }
bool is_broken() { return g_machine->state->broken; }

void give_up() {
  Machine& machine = *g_machine;
  machine.step([&] {
    machine.flush();
    machine.state->broken = true;
    return std::uint64_t{0};
  });
}

// A part has one result, as if it were one step.
Part begin() {
  Machine& machine = *g_machine;
  if (machine.stopped) return Part::over;
  auto& self = machine.self();
  if (machine.at < self.results.size()) return static_cast<Part>(self.results[machine.at++]);
  self.parts.push_back(machine.at);
  self.results.push_back(static_cast<std::uint64_t>(Part::first));
  ++machine.at;
  return Part::first;
}

void again() {
  Machine& machine = *g_machine;
  if (machine.stopped) return;
  auto& self = machine.self();
  self.results.resize(self.parts.back() + 1);
  self.results.back() = static_cast<std::uint64_t>(Part::woken);
  machine.at = self.results.size();
}

bool block() {
  Machine& machine = *g_machine;
  if (machine.stopped) return true;
  if (machine.state->broken) return false;
  again();
  return machine.stopped = true;
}

void end() {
  Machine& machine = *g_machine;
  if (machine.stopped) return;
  auto& self = machine.self();
  self.results.resize(self.parts.back() + 1);
  self.results.back() = static_cast<std::uint64_t>(Part::over);
  self.parts.pop_back();
  machine.at = self.results.size();
}

std::uint64_t load(int word, std::memory_order order) {
  Machine& machine = *g_machine;
  return machine.step([&] {
    auto& self = machine.self();
    for (std::size_t i = self.buffer.size(); i-- > 0;)
      if (self.buffer[i].word == word) return self.buffer[i].value;
    const WordState& now = machine.word(word);
    if (is_acquire(order)) join(self.clock, now.clock);
    return now.value;
  });
}

void store(int word, std::uint64_t value, std::memory_order order) {
  Machine& machine = *g_machine;
  machine.step([&] {
    auto& self = machine.self();
    const bool release = is_release(order) && !machine.settings.mutant.drops_release;
    self.buffer.push_back({word, value, release ? self.clock : Clock{}});
    if (release) machine.time() += std::exchange(self.used_cells, false);
    if (order == std::memory_order_seq_cst) machine.flush();
    return std::uint64_t{0};
  });
}

std::uint64_t fetch_add(int word, std::uint64_t value, std::memory_order order) {
  Machine& machine = *g_machine;
  if (machine.settings.mutant.weak_read_modify && value == 0) return load(word, order);
  return machine.step([&] {
    machine.flush();
    WordState& now = machine.word(word);
    const std::uint64_t before = now.value;
    now.value = (before + value) % kBellCounts;
    return before;
  });
}

std::uint64_t compare_exchange(int word, std::uint64_t expected, std::uint64_t value) {
  Machine& machine = *g_machine;
  return machine.step([&] {
    machine.flush();
    WordState& now = machine.word(word);
    const std::uint64_t before = now.value;
    if (before == expected) now.value = value;
    return before;
  });
}

// Where no store waits, it makes no difference when it comes.
void fence() {
  Machine& machine = *g_machine;
  const bool waits = !machine.self().buffer.empty() && !machine.settings.mutant.weak_fence;
  const auto act = [&] {
    if (waits) machine.flush();
    return std::uint64_t{0};
  };
  waits ? machine.step(act) : machine.at_once(act);
}

void sleep(int word, std::uint64_t value) {
  Machine& machine = *g_machine;
  machine.step([&] {
    machine.flush();
    auto& self = machine.self();
    if (self.asleep == word) {  // woken, or the group is broken
      self.asleep = kNobody;
      self.woken = false;
    } else if (machine.word(word).value == value) {
      self.asleep = word;
      machine.stopped = true;
    }
    return std::uint64_t{0};
  });
}

void wake(int word) {
  Machine& machine = *g_machine;
  if (machine.settings.mutant.drops_wake) return;
  machine.step([&] {
    for (ThreadState& thread : machine.state->threads)
      if (thread.asleep == word) thread.woken = true;
    return std::uint64_t{0};
  });
}

std::uint64_t read(int index) {
  Machine& machine = *g_machine;
  return machine.at_once([&] {
    auto& self = machine.self();
    CellState& cell = machine.cell(index);
    if (!knows(self.clock, cell.writer, cell.written))
      problem("thread " + std::to_string(machine.thread) + " reads cell " + std::to_string(index) +
              " while thread " + std::to_string(cell.writer) + " may write it");
    self.used_cells = true;
    cell.read[static_cast<std::size_t>(machine.thread)] = machine.time();
    return cell.value;
  });
}

void write(int index, std::uint64_t value) {
  Machine& machine = *g_machine;
  machine.at_once([&] {
    auto& self = machine.self();
    CellState& cell = machine.cell(index);
    bool ordered = knows(self.clock, cell.writer, cell.written);
    for (int i = 0; i < machine.settings.threads; ++i)
      ordered &=
          i == machine.thread || knows(self.clock, i, cell.read[static_cast<std::size_t>(i)]);
    if (!ordered)
      problem("thread " + std::to_string(machine.thread) + " writes cell " + std::to_string(index) +
              " while another may use it");
    self.used_cells = true;
    cell.value = value;
    cell.writer = machine.thread;
    cell.written = machine.time();
    return std::uint64_t{0};
  });
}

bool read_was_torn(int index, std::uint64_t expected) {
  Machine& machine = *g_machine;
  return machine.step([&] {
    const CellState& cell = machine.cell(index);
    const bool ordered = knows(machine.self().clock, cell.writer, cell.written);
    return std::uint64_t{!ordered || cell.value != expected};
  }) != 0;
}

}  // namespace c10d::model
