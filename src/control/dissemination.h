// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/call.h"
#include "src/net/mesh/rank_grid.h"
#include "src/recorder/signature.h"

namespace c10d { inline namespace v0 {

// What a rank says when it comes to a call.
struct Coming {
  std::uint64_t sequence = 0;
  std::uint64_t hash = 0;     // which all ranks must have in common
  std::uint64_t balance = 0;  // which must add up to 0 over all ranks
  Signature signature{};      // what the hash is of, to name a difference
  // For all others, who get it with the step that tells them of this rank. As long on each where
  // the calls are the same.
  std::string_view carried{};
};

// All ranks together carry at most so much with a call: a frame of a mesh holds it.
inline constexpr std::size_t kMostCarried = std::size_t{32} << 10;

// How the ranks of a group enter calls together or not at all, by messages to their neighbours. In
// each step of the grid a rank tells the one ahead of it that it has come, and so have those that
// it has heard of, and hears from the one behind; after the last it has heard of all. Messages of
// one neighbour arrive in their order.
//
// Who gives up asks all: whoever has not come by then never will, and says so. If one has not, no
// rank can have heard of all, and none goes in. If all have, the call goes through: who answers
// says of whom it has heard, so that a rank which is stopped holds up no word of others.
//
// A state machine of one rank, for one thread at a time. It sends nothing itself: take_letters().
class Dissemination {
 public:
  enum class Outcome : std::uint8_t {
    pending,     // not all are known to have come
    goes,        // all have, with the same call: this rank goes in
    differs,     // one came to another call: difference()
    unbalanced,  // all came, but the balances do not add up to 0
    barred,      // one never comes, or has given up: no rank goes in
    left         // one left the group before: no rank goes in
  };
  struct Letter {
    int to;
    std::string body;
  };

  Dissemination(int rank, const RankGrid& grid);

  // This rank comes to its next call; the same one again changes nothing. False: it may not, as
  // another rank gave up the call.
  bool come(const Coming& own);
  // A letter of a neighbour. False: no rank of this group can have written it.
  bool receive(int from, std::string_view body);
  // That a rank left the group, and its last call.
  void leave(int rank, std::uint64_t last);
  // Asks who has come to the call `sequence`. If `bars`, who has not never will.
  void ask(std::uint64_t sequence, bool bars);
  // This rank, which has come, gives the call up although not all have said whether they came.
  void give_up();
  // Whether a neighbour died of which word may still come. Until it has, this rank does not answer
  // who has come: it would be too little.
  void hold_answers(bool holds);

  // Of the last call that this rank has come to. Once it goes, it goes.
  Outcome outcome();
  // Whether all that ranks carry with that call is here. A call may go before: a rank that is
  // stopped holds up what it was to pass on.
  bool has_carried() const noexcept { return step_ == steps(); }
  // What a rank carried; until this rank comes to its next call.
  std::string_view carried(int rank) const noexcept {
    const auto order = static_cast<std::size_t>(grid_.order(rank_, rank));
    return std::string_view(carried_).substr(order * carried_bytes_, carried_bytes_);
  }
  // The rank whose call differs, and that call.
  const std::pair<int, Coming>& difference() const noexcept { return difference_; }
  // The ranks that are known to have made the last call with this hash, ascending. Also one that
  // is barred from a call says which one it makes once it comes to it.
  std::vector<int> ranks_with(std::uint64_t hash) const;
  // Of two sides of a difference: whether more than half of the ranks are known to be on one, or
  // nothing more is to be learnt.
  bool is_settled() const;
  // The last call that this rank has come to.
  std::uint64_t last() const noexcept { return own_.sequence; }
  // The ranks that are not known to have come to a call that was asked about, ascending.
  std::vector<int> missing(std::uint64_t sequence) const;
  // The ranks that have not answered whether they came to a call that bars, and have not left.
  std::vector<int> silent(std::uint64_t sequence) const;
  // A rank that left before the last call that this rank has come to.
  std::optional<int> left_before() const;

  // What is to be sent now.
  std::vector<Letter> take_letters();

 private:
  // What is known of one call after somebody asked: a bit for each rank.
  struct Answers {
    std::string came, barred;
    std::string answered;                        // who has heard that it is barred, or would be
    std::map<std::uint64_t, std::string> calls;  // by hash: who has made it, barred or not
    bool is_balanced = false;                    // if all have come
    bool bars = false;
    bool is_news = true;  // to the neighbours
  };

  bool has_heard_of(int rank) const noexcept;
  const RankGrid::Step& step(int number) const noexcept {
    return grid_.steps()[static_cast<std::size_t>(number)];
  }
  int steps() const noexcept { return static_cast<int>(grid_.steps().size()); }
  // How much goes with a step: of the nearest ranks, as far as its receiver lacks them.
  static std::size_t bytes_of(const RankGrid::Step& step, std::size_t bytes) noexcept {
    return static_cast<std::size_t>(step.told()) * bytes;
  }
  void advance();
  void send_step();
  bool receive_step(int from, std::string_view body);
  bool receive_answers(std::string_view body);
  Answers& answers_of(std::uint64_t sequence);
  void answer(std::uint64_t sequence, Answers& answers);
  // Whether that is news.
  bool add_call(Answers& answers, std::uint64_t hash, std::string_view ranks) const;
  bool knows_that_it_came(int rank, std::uint64_t sequence) const;

  const int rank_, size_;
  const RankGrid grid_;
  Coming own_{};
  std::uint64_t went_ = 0, went_hash_ = 0;  // the last call that this rank goes into
  std::uint64_t barred_ = 0;                // the last call that this rank has been barred from
  int step_ = 0;                            // of own_: how many are done
  bool differs_ = false;
  bool holds_ = false;  // its answers
  std::pair<int, Coming> difference_{-1, {}};
  // Sums of balances, inside the host and then of hosts: of the 2^k ranks up to this one before
  // step k, and of those that all of them are more than a multiple of 2^k.
  std::uint64_t window_ = 0, rest_ = 0;
  // What this rank and those behind it carry, the nearest first.
  std::string carried_;
  std::size_t carried_bytes_ = 0;  // of each
  struct Heard {
    Coming coming;  // but for what is carried
    std::uint64_t window, rest;
    std::string carried;
  };
  // By step: what was heard for the call of this rank, and for its next.
  std::vector<std::array<std::optional<Heard>, 2>> heard_;
  std::map<std::uint64_t, Answers> asked_;  // by call
  std::map<int, std::uint64_t> left_;       // last calls
  std::vector<int> neighbours_;
  std::vector<Letter> letters_;
};

// How long a rank waits in one call that it has come to.
class Patience {
 public:
  // After it gave up, for the others to say whether they came: longer where the network holds up
  // what was sent. A rank that is stopped for as long, or cut off, may go in alone.
  static constexpr std::chrono::milliseconds kAnswers{500}, kUnderWay{2000};
  // For the answer of a rank that most likely died: one that lives answers within 20 ms.
  static constexpr std::chrono::milliseconds kLost{100};

  explicit Patience(Deadline deadline) noexcept : deadline_(deadline) {}

  // What this rank does now. `late` and `broken`: it gives up, because its deadline passed, or the
  // group broke, and no rank goes in. All but `waits` are final.
  enum class Verdict : std::uint8_t {
    waits,
    goes,
    differs,
    unbalanced,
    left,
    barred,
    late,
    broken
  };
  struct Network {
    std::function<bool(int rank)> is_dead;  // whether no answer will come from it
    std::function<bool(int rank)> is_lost;  // or most likely none
    std::function<bool()> is_under_way;     // whether something sent has not arrived yet
  };
  // `network` is asked once this rank gives up.
  Verdict look(Dissemination& known, Deadline now, bool broken, const Network& network);

 private:
  const Deadline deadline_;
  bool asks_ = false;
  Deadline since_{};
};

}}  // namespace c10d::v0
