// SPDX-License-Identifier: BSD-3-Clause
// How ranks of several hosts enter calls together or not at all, whatever happens and in whatever
// order word of it gets through. Each run is one group in simulated time: its seed decides who
// comes when, how long letters are on their way, and what goes wrong. What they tell each other of
// failures goes the way of production (flood.h); the store, which has one cause for all, is not
// here.
#include "src/control/dissemination.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/base/hash.h"
#include "src/control/flood.h"
#include "src/net/mesh/rank_grid.h"
#include "tests/simulate/seeds.h"

namespace c10d { namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kCalls = 3;
constexpr auto kCallGate = static_cast<std::size_t>(Gate::calls);

enum class Mishap { none, odd, unbalanced, late, leaves, dies, aborts, stops, both_die, breaks };
constexpr int kMishaps = 10;

// What the network does on purpose wrong: the test must find it.
enum class Tamper {
  none,
  loses_answers,
  bars_nobody,
  forges_hashes,
  floods_nothing,
  swaps_carried
};

// What one rank did in one call.
struct Seen {
  std::optional<Patience::Verdict> verdict;
  Deadline deadline{}, came{}, over{};
};

class World {
 public:
  explicit World(std::uint64_t seed, Tamper tamper = Tamper::none)
      : random_(seed), tamper_(tamper), mishap_(static_cast<Mishap>(pick(kMishaps))) {
    const int size = pick(8) == 0 ? 17 + pick(17) : 2 + pick(8);
    culprit_ = pick(size);
    call_ = 1 + static_cast<std::uint64_t>(pick(static_cast<int>(kCalls)));
    const RankGrid grid = pick_grid(size);
    for (int rank = 0; rank < size; ++rank)
      ranks_.push_back(std::make_unique<Rank>(rank, grid, ends_of(rank)));
    adds_up_ = mishap_ == Mishap::unbalanced || pick(2) == 0;
    carried_bytes_ = static_cast<std::size_t>(pick(9));
    patient_ = (culprit_ + 1 + pick(size - 1)) % size;
    for (int rank = 0; rank < size; ++rank) at(pause(), Event::comes, rank);
    if (mishap_ == Mishap::dies) at(milliseconds(pick(60)), Event::dies, culprit_);
    if (mishap_ == Mishap::both_die) {
      const milliseconds together(pick(60));
      for (const int rank : {culprit_, patient_}) at(together, Event::dies, rank);
    }
    if (mishap_ == Mishap::breaks) at(milliseconds(pick(60)), Event::breaks, culprit_);
    if (mishap_ == Mishap::aborts) at(milliseconds(pick(60)), Event::aborts, culprit_);
  }

  // What went wrong, or nothing.
  std::string run() {
    for (int events = 0; !queue_.empty() && problem_.empty(); ++events) {
      if (events > 2'000'000) return "it does not end";
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.when;
      trace_ = mix(mix(trace_, static_cast<std::uint64_t>(event.kind)),
                   static_cast<std::uint64_t>(event.rank) ^
                       static_cast<std::uint64_t>(now_.time_since_epoch().count()));
      happen(event);
    }
    if (problem_.empty()) judge();
    return problem_;
  }

  std::uint64_t trace() const { return trace_; }

 private:
  struct Letter {
    MeshFrame frame;
    std::string body;
  };
  struct Event {
    enum Kind { comes, looks, arrives, dies, loses, sees, aborts, resumes, settles, breaks, ticks };
    Deadline when;
    std::uint64_t number;
    Kind kind;
    int rank;
    int from = -1;
    std::shared_ptr<Letter> letter{};
    bool operator<(const Event& other) const {
      return std::pair(when, number) > std::pair(other.when, other.number);
    }
  };
  struct Rank {
    Rank(int rank, const RankGrid& grid, Flood::Ends ends)
        : known(rank, grid),
          neighbours(grid.neighbours_of(rank)),
          flood(rank, grid.size(), neighbours, std::move(ends)) {}
    Dissemination known;
    const std::vector<int> neighbours;
    Flood flood;
    std::uint64_t call = 0;  // that it is in, or was in last
    bool is_in = false;
    std::optional<Patience> patience{};
    std::map<std::uint64_t, Seen> seen{};
    bool broken = false, dead = false, left = false, stopped = false;
    std::optional<int> dead_rank{};     // that broke the group, as far as this one knows
    std::optional<Deadline> told_by{};  // by when it hears why it was barred from a call
    int waits_for_others = 0;           // in ms, to say which call they make
    std::set<int> cut{};                // neighbours whose connection it, or they, have closed
    std::deque<Event> inbox{};          // outside of calls it reads each 20 ms
    std::deque<Event> missed{};         // while it was stopped
  };

  int pick(int choices) {
    return static_cast<int>(random_() % static_cast<std::uint64_t>(choices));
  }
  // On some hosts, whose ranks are neighbours or dealt out round robin.
  RankGrid pick_grid(int size) {
    const int hosts = 1 + pick(size);
    const bool deals = pick(2) == 0;
    std::vector<std::string> names;
    for (int rank = 0; rank < size; ++rank)
      names.push_back(std::to_string(deals ? rank % hosts : rank * hosts / size));
    return RankGrid(names);
  }
  Duration pause() { return microseconds(pick(40'000)); }

  void at(Duration later, Event::Kind kind, int rank, int from = -1,
          std::shared_ptr<Letter> letter = nullptr) {
    queue_.push({now_ + later, number_++, kind, rank, from, std::move(letter)});
  }

  void send(int from, int to, Letter letter) {
    if (tamper_ != Tamper::none && !tampered(to, letter)) return;
    if (of(from).cut.count(to) > 0 || of(to).cut.count(from) > 0) return;
    Deadline& last = arrival_[{from, to}];
    // What a rank sent before it died may be sent again before it arrives.
    const bool is_slow = mishap_ == Mishap::dies && from == culprit_ && pick(2) == 0;
    last = std::max(last, now_ + microseconds(20 + pick(is_slow         ? 50'000
                                                        : pick(10) == 0 ? 5'000
                                                                        : 200)));
    at(last - now_, Event::arrives, to, from, std::make_shared<Letter>(std::move(letter)));
  }
  Flood::Ends ends_of(int number) {
    return {.send =
                [this, number](MeshFrame frame, std::string_view body, int except) {
                  if (tamper_ == Tamper::floods_nothing) return;
                  for (const int to : of(number).neighbours)
                    if (to != except) send(number, to, {frame, std::string(body)});
                },
            .broken = [this, number] { return of(number).broken; },
            .break_here =
                [this, number](const Failure& cause) {
                  Rank& rank = of(number);
                  if (std::exchange(rank.broken, true)) return;
                  if (cause.code == Code::peer_died) rank.dead_rank = cause.rank;
                },
            .left =
                [this, number](int peer, const Flood::LastCalls& last) {
                  of(number).known.leave(peer, last[kCallGate]);
                },
            .awaits_end = [this, number](bool awaits) { of(number).known.hold_answers(awaits); }};
  }

  // Whether it is sent at all.
  bool tampered(int to, Letter& letter) {
    if (letter.frame != call_frame) return true;
    constexpr char kComing = 1;
    constexpr std::size_t kHash = 10;
    const bool comes = letter.body[0] == kComing;
    if (tamper_ == Tamper::loses_answers) return comes;
    if (tamper_ == Tamper::forges_hashes && comes)
      for (std::size_t i = 0; i < sizeof(std::uint64_t); ++i)
        letter.body[kHash + i] =
            static_cast<char>(hash_of_call(to, of(to).call + (of(to).is_in ? 0 : 1)) >> (8 * i));
    if (tamper_ == Tamper::bars_nobody && !comes) letter.body[1] = 0;
    if (tamper_ == Tamper::swaps_carried && comes) letter.body.back() ^= 1;
    return true;
  }

  Rank& of(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  void post(int rank) {
    for (Dissemination::Letter& letter : of(rank).known.take_letters())
      send(rank, letter.to, {call_frame, std::move(letter.body)});
  }

  // As long in all calls of a run; empty in some runs.
  std::string carried_by(int rank, std::uint64_t call) const {
    const std::uint64_t word = mix(call, static_cast<std::uint64_t>(rank));
    return {reinterpret_cast<const char*>(&word), carried_bytes_};
  }
  void compare_carried(int number, std::uint64_t call) {
    for (int other = 0; other < std::ssize(ranks_); ++other)
      if (of(number).known.carried(other) != carried_by(other, call))
        found("carried something else", call);
  }

  std::uint64_t hash_of_call(int rank, std::uint64_t call) const {
    const bool odd = mishap_ == Mishap::odd && rank == culprit_ && call == call_;
    return 100 * call + (odd ? 1 : 0);
  }

  void happen(const Event& event) {
    Rank& rank = of(event.rank);
    if (rank.dead) return;
    if (rank.stopped && event.kind != Event::resumes) {
      rank.missed.push_back(event);
      return;
    }
    switch (event.kind) {
      case Event::comes:
        come(event.rank);
        if (rank.is_in) read_inbox(event.rank);
        break;
      case Event::ticks:
        read_inbox(event.rank);
        break;
      case Event::looks:
        look(event.rank);
        if (rank.is_in) at(milliseconds(20), Event::looks, event.rank);
        break;
      case Event::arrives:
        if (!rank.is_in) {
          if (rank.inbox.empty()) at(milliseconds(1 + pick(20)), Event::ticks, event.rank);
          rank.inbox.push_back(event);
          break;
        }
        receive(event);
        look(event.rank);
        break;
      case Event::breaks:  // between two ranks that live: one gave it up, the other sees its end
        happened_ = now_;
        rank.cut.insert(patient_);
        rank.flood.lose(patient_, false);
        fail(event.rank, std::nullopt);
        at(microseconds(200), Event::loses, patient_, event.rank);
        break;
      case Event::dies:
        die(event.rank);
        break;
      case Event::loses:
        rank.cut.insert(event.from);
        rank.flood.lose(event.from, true);
        post(event.rank);
        if (!rank.flood.has_left(event.from))
          fail(event.rank,
               mishap_ == Mishap::breaks ? std::nullopt : std::optional<int>(event.from));
        break;
      case Event::sees:
        rank.flood.note_dead(event.from);
        post(event.rank);
        fail(event.rank, event.from);
        break;
      case Event::aborts:
        happened_ = now_;
        fail(event.rank, std::nullopt);
        break;
      case Event::settles:
        settle(event.rank);
        break;
      case Event::resumes: {
        rank.stopped = false;
        std::deque<Event> missed;
        missed.swap(rank.missed);
        // All that lies in its sockets, before it decides anything.
        for (const Event& one : missed)
          if (one.kind == Event::arrives) happen(one);
        for (const Event& one : missed)
          if (one.kind != Event::arrives) happen(one);
        break;
      }
    }
  }

  void die(int number) {
    of(number).dead = true;
    happened_ = now_;
    for (const int neighbour : of(number).neighbours)
      at(std::max<Duration>(milliseconds(pick(50)), arrival_[{number, neighbour}] - now_),
         Event::loses, neighbour, number);  // behind what it sent
    if (pick(2) == 0) {  // a rank of its host sees it by its process, whether linked or not
      const int other = pick(static_cast<int>(ranks_.size()));
      if (other != number) at(microseconds(pick(2000)), Event::sees, other, number);
    }
  }

  void read_inbox(int number) {
    std::deque<Event> inbox;
    inbox.swap(of(number).inbox);
    for (const Event& one : inbox) receive(one);
    look(number);
  }

  void fail(int rank, std::optional<int> dead_rank) {
    if (of(rank).broken) return;
    of(rank).flood.break_group({.code = dead_rank ? Code::peer_died : Code::revoked,
                                .message = "a mishap",
                                .rank = dead_rank.value_or(-1)});
  }

  void come(int number) {
    Rank& rank = of(number);
    const std::uint64_t call = rank.call + 1;
    if (call > kCalls || rank.left) return;
    if (rank.told_by && !rank.broken) {  // why it was barred
      if (now_ < *rank.told_by) return at(milliseconds(5), Event::comes, number);
      fail(number, std::nullopt);
    }
    if (mishap_ == Mishap::leaves && number == culprit_ && call == call_) {
      rank.left = true;
      happened_ = now_;
      Flood::LastCalls last{};
      last[kCallGate] = rank.known.last();
      return rank.flood.leave(last);
    }
    if (mishap_ == Mishap::late && number == culprit_ && call == call_ && !was_late_) {
      const auto other = of(patient_).seen.find(call);
      if (other == of(patient_).seen.end()) return at(milliseconds(10), Event::comes, number);
      was_late_ = true;  // about when the other one asks, or gives up
      const Duration answers = pick(2) == 0 ? Duration(0) : Duration(Patience::kAnswers);
      const Deadline then = other->second.deadline + answers + microseconds(pick(4000) - 2000);
      return at(std::max<Duration>(then - now_, {}), Event::comes, number);
    }
    rank.call = call;
    Seen& seen = rank.seen[call];
    seen.came = now_;
    if (rank.broken) return end(number, Patience::Verdict::broken);
    const bool impatient = mishap_ == Mishap::late && number == patient_ && call == call_;
    seen.deadline = now_ + (impatient ? Duration(milliseconds(100 + pick(100))) : seconds(3));
    rank.is_in = true;
    rank.patience.emplace(seen.deadline);
    const std::uint64_t balance =
        mishap_ == Mishap::unbalanced && number == culprit_ && call == call_ ? 1 : 0;
    // The others' parts of a sum that is 0.
    const std::uint64_t part = number == 0 ? 1 - ranks_.size() : 1;
    Coming coming{.sequence = call, .hash = hash_of_call(number, call), .balance = part + balance};
    if (adds_up_) coming.signature.kind = OpKind::all_to_all_v;
    const std::string carried = carried_by(number, call);
    coming.carried = carried;
    const bool may_enter = rank.known.come(coming);
    post(number);
    if (!may_enter) return end(number, Patience::Verdict::barred);
    if (mishap_ == Mishap::stops && number == culprit_ && call == call_) {
      rank.stopped = true;
      at(milliseconds(pick(2) == 0 ? 1000 : 4500), Event::resumes, number);
    }
    at(Duration(0), Event::looks, number);
  }

  void look(int number) {
    Rank& rank = of(number);
    if (!rank.is_in) return;
    const Patience::Verdict verdict = rank.patience->look(
        rank.known, now_, rank.broken,
        {.is_dead = [&](int other) { return rank.broken && rank.dead_rank == other; },
         .is_lost = [&](int other) { return rank.broken && rank.flood.is_lost(other); },
         .is_under_way = [] { return false; }});
    post(number);
    if (verdict != Patience::Verdict::waits) end(number, verdict);
  }

  void end(int number, Patience::Verdict verdict) {
    Rank& rank = of(number);
    rank.is_in = false;
    Seen& seen = rank.seen[rank.call];
    seen.verdict = verdict;
    seen.over = now_;
    if (verdict == Patience::Verdict::goes) {
      if (rank.known.has_carried())
        compare_carried(number, rank.call);
      else
        ++without_carried_;
    }
    if (verdict == Patience::Verdict::late)
      for (const int missing : rank.known.missing(rank.call)) named_.insert({rank.call, missing});
    if (verdict == Patience::Verdict::differs) return settle(number);
    if (verdict == Patience::Verdict::barred)
      rank.told_by = now_ + seconds(2);
    else if (verdict != Patience::Verdict::goes)
      fail(number, rank.dead_rank);
    at(pause(), Event::comes, number);  // as async calls do that lie in a queue
  }

  // Says whose call is another one than that of most.
  void settle(int number) {
    Rank& rank = of(number);
    if (!rank.broken && !rank.known.is_settled() &&
        (rank.waits_for_others += 20) < Duration(Patience::kAnswers) / milliseconds(1))
      return at(milliseconds(20), Event::settles, number);
    if (!rank.broken && rank.known.difference().second.sequence == rank.call) {
      const int peer = rank.known.difference().first;
      const auto with_me = rank.known.ranks_with(hash_of_call(number, rank.call)).size();
      const auto with_peer = rank.known.ranks_with(hash_of_call(peer, rank.call)).size();
      if (tamper_ == Tamper::none && ranks_.size() > 2 &&
          (with_me < with_peer ? number : peer) != culprit_)
        found("named another rank than the odd one", rank.call);
    }
    fail(number, rank.dead_rank);
    at(pause(), Event::comes, number);
  }

  void receive(const Event& event) {
    Rank& rank = of(event.rank);
    const Letter& letter = *event.letter;
    if (letter.frame != call_frame) {
      if (!rank.flood.take(event.from, letter.frame, letter.body)) problem_ = "word of no rank";
      return;
    }
    if (!rank.known.receive(event.from, letter.body)) problem_ = "a letter of no rank";
    post(event.rank);
  }

  // Whether word of each rank that lives can reach all others.
  bool are_linked() {
    std::set<int> living, reached;
    for (int rank = 0; rank < std::ssize(ranks_); ++rank)
      if (!of(rank).dead) living.insert(rank);
    const std::function<void(int)> reach = [&](int rank) {
      if (living.count(rank) == 0 || !reached.insert(rank).second) return;
      for (const int neighbour : of(rank).neighbours) reach(neighbour);
    };
    reach(*living.begin());
    return reached == living;
  }

  void judge() {
    for (std::uint64_t call = 1; call <= kCalls; ++call) {
      int went = 0, refused = 0;
      for (const auto& rank : ranks_) {
        const auto place = rank->seen.find(call);
        if (place == rank->seen.end() || rank->dead) continue;
        const Seen& seen = place->second;
        if (!seen.verdict) return found("a rank waits for ever", call);
        ++(*seen.verdict == Patience::Verdict::goes ? went : refused);
        // Ranks that died are not waited for, but if all came: for word of their counts.
        const bool died = tamper_ == Tamper::none && !adds_up_ &&
                          (mishap_ == Mishap::dies || mishap_ == Mishap::both_die) && are_linked();
        const Deadline latest = std::max(happened_ ? *happened_ : seen.deadline, seen.came) +
                                (died                        ? Patience::kAnswers * 4 / 5
                                 : mishap_ == Mishap::leaves ? milliseconds(400)
                                                             : milliseconds(1000));
        const bool was_stopped = mishap_ == Mishap::stops && rank.get() == &of(culprit_);
        if (seen.over > latest && !was_stopped) return found("a rank waits too long", call);
      }
      const bool wrong = (mishap_ == Mishap::odd || mishap_ == Mishap::unbalanced) && call == call_;
      if (wrong && went > 0) return found("went into a call on which ranks disagree", call);
      // Between two ranks nobody else can say what the other one has heard.
      const bool is_cut = mishap_ == Mishap::breaks && ranks_.size() == 2;
      if (went > 0 && refused > 0 && !is_cut) return found("some went, some did not", call);
      if (mishap_ == Mishap::none && refused > 0) return found("refused for nothing", call);
    }
    if (tamper_ == Tamper::none && of(culprit_).left)
      for (const auto& rank : ranks_)
        if (rank.get() != &of(culprit_) && !rank->flood.has_left(culprit_))
          return found("a rank has not heard who left", call_);
    if (mishap_ == Mishap::none && without_carried_ > 0) found("went without all data", kCalls);
    for (const auto& [call, rank] : named_) {
      const auto place = of(rank).seen.find(call);
      if (place != of(rank).seen.end() && place->second.verdict == Patience::Verdict::goes)
        return found("named a rank that came", call);
    }
  }

  void found(const char* what, std::uint64_t call) {
    problem_ = std::string(what) + ", call " + std::to_string(call) + " of " +
               std::to_string(ranks_.size()) + " ranks, mishap " +
               std::to_string(static_cast<int>(mishap_)) + " at " + std::to_string(call_);
  }

  std::mt19937_64 random_;
  const Tamper tamper_;
  const Mishap mishap_;
  int culprit_ = 0, patient_ = 0;
  std::uint64_t call_ = 0;              // of the mishap
  bool adds_up_ = false;                // whether balances count
  std::size_t carried_bytes_ = 0;       // of each rank
  int without_carried_ = 0;             // ranks that went before all of it was there
  std::optional<Deadline> happened_{};  // a death, or an abort
  bool was_late_ = false;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::priority_queue<Event> queue_;
  std::map<std::pair<int, int>, Deadline> arrival_;
  std::set<std::pair<std::uint64_t, int>> named_;  // as missing in a call
  std::uint64_t number_ = 0;
  std::uint64_t trace_ = 0;
  Deadline now_{};
  std::string problem_;
};

TEST(Dissemination, EveryCallEndsForAllOrForNone) { simulate::expect_no_problem<World>(); }

TEST(Dissemination, ASeedHasOneCourse) { simulate::expect_one_course<World>(); }

// The first problem of many runs on a network that tampers.
std::string found_with(Tamper tamper) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed)
    if (std::string problem = World(seed, tamper).run(); !problem.empty()) return problem;
  return "nothing";
}

// Else the runs above would prove nothing.
TEST(Dissemination, WhatIsTamperedWithIsFound) {
  EXPECT_NE(found_with(Tamper::loses_answers), "nothing");
  EXPECT_NE(found_with(Tamper::bars_nobody), "nothing");
  EXPECT_NE(found_with(Tamper::forges_hashes).find("disagree"), std::string::npos);
  EXPECT_NE(found_with(Tamper::floods_nothing), "nothing");
  EXPECT_NE(found_with(Tamper::swaps_carried).find("carried"), std::string::npos);
}

}}  // namespace c10d

// simulate [--seeds=N]
int main(int argc, char** argv) { return c10d::simulate::run_tests(argc, argv); }
