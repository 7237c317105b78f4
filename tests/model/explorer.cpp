// SPDX-License-Identifier: BSD-3-Clause
#include "tests/model/explorer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tests/model/state.h"

namespace c10d::model {
namespace {

constexpr std::uint64_t kBellCounts = 8;  // fewer rings than that can come at one time

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
      const State state = std::move(open_.back().second);
      from_ = open_.back().first;
      open_.pop_back();
      if (!expand(state)) report_stuck(state);
      if (seen_.size() > machine_.settings.max_states) machine_.problem = "too many states";
    }
    if (machine_.problem.empty()) report_endless();
    g_machine = nullptr;
    g_words.clear();
    g_cells = 0;
    return {machine_.problem, seen_.size()};
  }

 private:
  // What `may` happen need not.
  void push(State state, bool may = false) {
    const auto [place, is_new] =
        seen_.try_emplace(hash_of(state), static_cast<std::uint32_t>(seen_.size()));
    const std::uint32_t to = place->second;
    if (!may) ways_.push_back({to, from_});
    if (!is_new) return;
    ends_.push_back(std::all_of(state.threads.begin(), state.threads.end(),
                                [](const ThreadState& of) { return of.over || of.dead; }));
    open_.push_back({to, std::move(state)});
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
        push(std::move(next), true);
      }
    }
    if ((state.deaths != 0 || machine_.settings.breaks) && !state.broken) {
      any |= state.deaths != 0;
      State next = state;
      next.broken = true;
      push(std::move(next), state.deaths == 0);
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

  // From the ends backwards: which states do not arrive to one?
  void report_endless() {
    std::sort(ways_.begin(), ways_.end());
    std::vector<std::uint32_t> reached;
    for (std::uint32_t state = 0; state < ends_.size(); ++state)
      if (ends_[state]) reached.push_back(state);
    for (std::size_t i = 0; i < reached.size(); ++i)
      for (auto way = std::lower_bound(ways_.begin(), ways_.end(), Way{reached[i], 0});
           way != ways_.end() && way->to == reached[i]; ++way)
        if (!ends_[way->from]) reached.push_back(way->from), ends_[way->from] = true;
    if (reached.size() != ends_.size()) machine_.problem = "some threads look for ever";
  }

  Machine machine_;
  const std::function<bool(int)>& body_;
  struct Way {
    std::uint32_t to, from;
    auto operator<=>(const Way&) const = default;
  };
  std::vector<std::pair<std::uint32_t, State>> open_;
  std::unordered_map<std::uint64_t, std::uint32_t> seen_;  // by hash: in which order they came
  std::vector<bool> ends_;                                 // by that number
  std::vector<Way> ways_;
  std::uint32_t from_ = 0;
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
  const Settings& settings = machine.settings;
  if (settings.deaths == 0 && !settings.gives_up && !settings.breaks) return false;
  return machine.step([&] { return std::uint64_t{machine.state->broken}; }) != 0;
}

bool look(const std::function<bool()>& ready) {
  return g_machine->step([&] { return std::uint64_t{ready()}; }) != 0;
}
std::uint64_t peek(int word) { return g_machine->word(word).value; }
bool is_broken() { return g_machine->state->broken; }

std::uint64_t mark(int word, std::uint64_t bits) {
  Machine& machine = *g_machine;
  return machine.at_once([&] {
    std::uint64_t& value = machine.word(word).value;
    return std::exchange(value, value | bits);
  });
}

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
  if (machine.at < self.results.size())
    return std::min(Part::over, static_cast<Part>(self.results[machine.at++]));
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

void end(std::uint64_t outcome) {
  Machine& machine = *g_machine;
  if (machine.stopped) return;
  auto& self = machine.self();
  self.results.resize(self.parts.back() + 1);
  self.results.back() = static_cast<std::uint64_t>(Part::over) + outcome;
  self.parts.pop_back();
  machine.at = self.results.size();
}

std::size_t here() { return g_machine->at; }

void back_to(std::size_t place) {
  Machine& machine = *g_machine;
  if (machine.stopped) return;
  machine.self().results.resize(place);
  machine.at = place;
}

std::uint64_t outcome() {
  const Machine& machine = *g_machine;
  if (machine.stopped) return 0;
  return machine.state->threads[static_cast<std::size_t>(machine.thread)].results[machine.at - 1] -
         static_cast<std::uint64_t>(Part::over);
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
    if (order == std::memory_order_seq_cst && !machine.settings.mutant.weak_store) machine.flush();
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

std::uint64_t compare_exchange(int word, std::uint64_t expected, std::uint64_t value,
                               std::memory_order order) {
  Machine& machine = *g_machine;
  return machine.step([&] {
    machine.flush();
    WordState& now = machine.word(word);
    const std::uint64_t before = now.value;
    if (is_acquire(order)) join(machine.self().clock, now.clock);
    if (before != expected) return before;
    now.value = value;
    if (is_release(order) && !machine.settings.mutant.drops_release) {
      join(now.clock, machine.self().clock);
      machine.time() += std::exchange(machine.self().used_cells, false);
    }
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
