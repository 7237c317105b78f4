// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/dissemination.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "src/net/bytes.h"

namespace c10d { inline namespace v0 {
namespace {

enum Kind : std::uint8_t { step_letter = 1, answer_letter };

constexpr std::size_t kMostCalls = 4;   // that are remembered after somebody asked
constexpr std::size_t kMostHashes = 4;  // of one of them, beside that of the own call

std::string no_bits(int size) {
  return std::string((static_cast<std::size_t>(size) + 7) / 8, '\0');
}
bool has_bit(const std::string& bits, int rank) {
  const auto at = static_cast<unsigned>(rank);
  return (static_cast<unsigned char>(bits[at / 8]) >> (at % 8) & 1U) != 0;
}
void set_bit(std::string& bits, int rank) {
  const auto at = static_cast<unsigned>(rank);
  bits[at / 8] = static_cast<char>(static_cast<unsigned char>(bits[at / 8]) | 1U << (at % 8));
}
bool has_any(const std::string& bits) { return bits.find_first_not_of('\0') != bits.npos; }
int count_of(const std::string& bits) {
  int count = 0;
  for (const char byte : bits) count += std::popcount(static_cast<unsigned char>(byte));
  return count;
}
// Whether `bits` gained one.
bool add_bits(std::string& bits, std::string_view more) {
  bool gained = false;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const auto both = static_cast<char>(static_cast<unsigned char>(bits[i]) |
                                        static_cast<unsigned char>(more[i]));
    gained = gained || both != bits[i];
    bits[i] = both;
  }
  return gained;
}

// Whether a bit is of no rank.
bool has_stray(std::string_view bits, int size) {
  const unsigned in_last = static_cast<unsigned>(size) % 8;
  return in_last != 0 && static_cast<unsigned char>(bits.back()) >> in_last != 0;
}

static_assert(std::is_trivially_copyable_v<Signature>);

}  // namespace

Dissemination::Dissemination(int rank, const RankGrid& grid)
    : rank_(rank),
      size_(grid.size()),
      grid_(grid),
      heard_(grid.steps().size()),
      neighbours_(grid.neighbours_of(rank)) {}

bool Dissemination::come(const Coming& own) {
  if (own.sequence == own_.sequence) return true;
  if (own.sequence <= barred_) {
    if (const auto asked = asked_.find(own.sequence); asked != asked_.end()) {
      std::string self = no_bits(size_);
      set_bit(self, rank_);
      if (add_call(asked->second, own.hash, self)) asked->second.is_news = true;
    }
    return false;
  }
  own_ = own;
  own_.carried = {};
  carried_bytes_ = own.carried.size();
  carried_ = own.carried;
  step_ = 0;
  differs_ = false;
  window_ = own.balance;
  rest_ = 0;
  asked_.erase(asked_.begin(), asked_.lower_bound(went_));  // others may be in that one
  for (auto& step : heard_)
    if (step[0] && step[0]->coming.sequence < own.sequence) {
      step[0] = step[1];
      step[1].reset();
    }
  if (const auto asked = asked_.find(own.sequence); asked != asked_.end())
    answer(own.sequence, asked->second);
  send_step();
  advance();
  return true;
}

void Dissemination::send_step() {
  if (step_ == steps()) return;
  Letter letter{grid_.ahead(rank_, step(step_)), {}};
  put(letter.body, static_cast<std::uint8_t>(step_letter));
  put(letter.body, static_cast<std::uint8_t>(step_));
  for (const std::uint64_t word : {own_.sequence, own_.hash, window_, rest_})
    put(letter.body, word);
  letter.body.append(reinterpret_cast<const char*>(&own_.signature), sizeof own_.signature);
  letter.body.append(carried_, 0, bytes_of(step(step_), carried_bytes_));
  letters_.push_back(std::move(letter));
}

// As far as this rank has heard.
void Dissemination::advance() {
  while (step_ < steps() && !differs_) {
    const RankGrid::Step& now = step(step_);
    auto& [heard, next] = heard_[static_cast<std::size_t>(step_)];
    if (!heard || heard->coming.sequence != own_.sequence) return;
    const Heard theirs = *std::move(heard);
    heard = std::exchange(next, std::nullopt);
    if (theirs.coming.hash != own_.hash || theirs.carried.size() != bytes_of(now, carried_bytes_)) {
      differs_ = true;
      difference_ = {grid_.behind(rank_, now), theirs.coming};
      give_up();
      std::string behind = no_bits(size_);
      for (int order = now.heard(); order < now.heard() + now.told(); ++order)
        set_bit(behind, grid_.rank_at(rank_, order));
      add_call(asked_[own_.sequence], theirs.coming.hash, behind);
      return;
    }
    if ((now.count & now.distance) != 0) rest_ = window_ + theirs.rest;
    window_ += theirs.window;
    if (now.is_last()) {  // of all ranks of the host, or of the group
      if (!std::has_single_bit(static_cast<unsigned>(now.count))) window_ = rest_;
      rest_ = 0;
    }
    carried_ += theirs.carried;
    ++step_;
    send_step();
  }
}

bool Dissemination::receive(int from, std::string_view body) {
  if (body.empty()) return false;
  const auto kind = static_cast<std::uint8_t>(body[0]);
  body.remove_prefix(1);
  return kind == step_letter ? receive_step(from, body)
                             : kind == answer_letter && receive_answers(body);
}

bool Dissemination::receive_step(int from, std::string_view body) {
  ByteReader reader(body);
  const int number = reader.take<std::uint8_t>();
  Heard heard{};
  heard.coming.sequence = reader.take<std::uint64_t>();
  heard.coming.hash = reader.take<std::uint64_t>();
  heard.window = reader.take<std::uint64_t>();
  heard.rest = reader.take<std::uint64_t>();
  const std::string_view signature = reader.take_bytes(sizeof(Signature));
  const std::string_view carried = reader.take_bytes(reader.left());
  if (!reader.finished() || number >= steps() || from != grid_.behind(rank_, step(number)) ||
      carried.size() > kMostCarried)
    return false;
  std::memcpy(&heard.coming.signature, signature.data(), sizeof(Signature));
  if (heard.coming.sequence < own_.sequence) {
    if (heard.coming.sequence <= went_ || went_ == own_.sequence) return true;  // heard otherwise
    differs_ = true;  // this rank made no such call before this one
    difference_ = {from, heard.coming};
    return true;
  }
  heard.carried = carried;
  auto& [first, second] = heard_[static_cast<std::size_t>(number)];
  if (first && second) return false;
  (first ? second : first) = std::move(heard);
  if (second && second->coming.sequence <= first->coming.sequence) return false;
  advance();
  return true;
}

Dissemination::Answers& Dissemination::answers_of(std::uint64_t sequence) {
  if (const auto known = asked_.find(sequence); known != asked_.end()) return known->second;
  if (asked_.size() == kMostCalls) asked_.erase(asked_.begin());
  return asked_[sequence] = {
             .came = no_bits(size_), .barred = no_bits(size_), .answered = no_bits(size_)};
}

// In the steps of the call that this rank came to last: with the same call.
bool Dissemination::has_heard_of(int rank) const noexcept {
  return grid_.order(rank_, rank) < (step_ == steps() ? size_ : step(step_).heard());
}

// What this rank has to say.
void Dissemination::answer(std::uint64_t sequence, Answers& answers) {
  const bool may_hear_more = own_.sequence == sequence && went_ != sequence &&
                             !has_bit(answers.barred, rank_);  // then it never goes in
  if (answers.bars && !(holds_ && may_hear_more) && !has_bit(answers.answered, rank_)) {
    set_bit(answers.answered, rank_);
    answers.is_news = true;
  }
  if (own_.sequence < sequence) {
    if (!answers.bars) return;
    barred_ = std::max(barred_, sequence);
    if (!has_bit(answers.barred, rank_)) answers.is_news = true;
    return set_bit(answers.barred, rank_);
  }
  const bool went = went_ == sequence;
  if (!went && own_.sequence != sequence) return;
  std::string heard = no_bits(size_);
  for (int rank = 0; rank < size_; ++rank)
    if (went || has_heard_of(rank)) set_bit(heard, rank);
  const bool balanced = went || own_.signature.kind != OpKind::all_to_all_v;
  const bool more_came = add_bits(answers.came, heard);
  const bool more_calls = add_call(answers, went ? went_hash_ : own_.hash, heard);
  answers.is_news =
      answers.is_news || more_came || more_calls || (balanced && !answers.is_balanced);
  answers.is_balanced = answers.is_balanced || balanced;
}

bool Dissemination::add_call(Answers& answers, std::uint64_t hash, std::string_view ranks) const {
  auto known = answers.calls.find(hash);
  if (known == answers.calls.end()) {
    const bool is_own = hash == (went_ == own_.sequence ? went_hash_ : own_.hash);
    if (answers.calls.size() >= kMostHashes && !is_own) return false;
    known = answers.calls.emplace(hash, no_bits(size_)).first;
  }
  return add_bits(known->second, ranks);
}

void Dissemination::ask(std::uint64_t sequence, bool bars) {
  Answers& answers = answers_of(sequence);
  if (bars && !answers.bars) answers.bars = answers.is_news = true;
  answer(sequence, answers);
}

void Dissemination::give_up() {
  ask(own_.sequence, true);
  Answers& answers = asked_[own_.sequence];
  if (has_bit(answers.barred, rank_)) return;
  set_bit(answers.barred, rank_);
  answers.is_news = true;
}

void Dissemination::hold_answers(bool holds) {
  if (std::exchange(holds_, holds) == holds || holds) return;
  for (auto& [sequence, answers] : asked_) answer(sequence, answers);
}

bool Dissemination::receive_answers(std::string_view body) {
  ByteReader reader(body);
  const bool bars = reader.take<std::uint8_t>() != 0;
  const bool balanced = reader.take<std::uint8_t>() != 0;
  const auto sequence = reader.take<std::uint64_t>();
  const std::size_t bytes = no_bits(size_).size();
  const std::string_view came = reader.take_bytes(bytes);
  const std::string_view barred = reader.take_bytes(bytes);
  const std::string_view answered = reader.take_bytes(bytes);
  std::map<std::uint64_t, std::string_view> calls;
  while (reader.ok() && reader.left() > 0 && calls.size() <= kMostHashes) {
    const auto hash = reader.take<std::uint64_t>();
    calls[hash] = reader.take_bytes(bytes);
  }
  if (!reader.finished() || has_stray(came, size_) || has_stray(barred, size_) ||
      has_stray(answered, size_) ||
      std::ranges::any_of(calls, [&](const auto& call) { return has_stray(call.second, size_); }))
    return false;
  if (sequence < went_) return true;  // all have gone into it
  Answers& answers = answers_of(sequence);
  const auto gains = [&answers](bool news) { answers.is_news = answers.is_news || news; };
  gains(add_bits(answers.came, came));
  gains(add_bits(answers.barred, barred));
  gains(add_bits(answers.answered, answered));
  for (const auto& [hash, ranks] : calls) gains(add_call(answers, hash, ranks));
  gains(balanced && !std::exchange(answers.is_balanced, answers.is_balanced || balanced));
  gains(bars && !std::exchange(answers.bars, answers.bars || bars));
  answer(sequence, answers);
  return true;
}

void Dissemination::leave(int rank, std::uint64_t last) { left_[rank] = last; }

Dissemination::Outcome Dissemination::outcome() {
  if (went_ == own_.sequence) return Outcome::goes;
  if (differs_) return Outcome::differs;
  bool all_came = step_ == steps();
  if (all_came && window_ != 0) return Outcome::unbalanced;  // all ranks find the same sum
  if (const auto asked = asked_.find(own_.sequence); asked != asked_.end()) {
    const Answers& answers = asked->second;
    if (has_any(answers.barred)) return Outcome::barred;
    all_came = all_came || (answers.is_balanced && std::ssize(ranks_with(own_.hash)) == size_);
  }
  if (all_came) {
    went_ = own_.sequence;
    went_hash_ = own_.hash;
    if (const auto asked = asked_.find(went_); asked != asked_.end()) answer(went_, asked->second);
    return Outcome::goes;
  }
  return left_before() ? Outcome::left : Outcome::pending;
}

bool Dissemination::knows_that_it_came(int rank, std::uint64_t sequence) const {
  if (rank == rank_) return own_.sequence >= sequence;
  const auto gone = left_.find(rank);
  if (gone != left_.end()) return gone->second >= sequence;
  if (own_.sequence == sequence && has_heard_of(rank)) return true;
  const auto asked = asked_.find(sequence);
  return own_.sequence > sequence || (asked != asked_.end() && has_bit(asked->second.came, rank));
}

std::vector<int> Dissemination::ranks_with(std::uint64_t hash) const {
  std::vector<int> ranks;
  const auto asked = asked_.find(own_.sequence);
  if (asked == asked_.end()) return ranks;
  const auto call = asked->second.calls.find(hash);
  if (call == asked->second.calls.end()) return ranks;
  for (int rank = 0; rank < size_; ++rank)
    if (has_bit(call->second, rank)) ranks.push_back(rank);
  return ranks;
}

bool Dissemination::is_settled() const {
  const auto asked = asked_.find(own_.sequence);
  if (asked == asked_.end()) return true;
  std::string known = no_bits(size_);
  for (const auto& [rank, last] : left_) set_bit(known, rank);
  for (const auto& [hash, ranks] : asked->second.calls) {
    if (2 * count_of(ranks) > size_) return true;
    add_bits(known, ranks);
  }
  return count_of(known) == size_;
}

std::optional<int> Dissemination::left_before() const {
  for (const auto& [rank, last] : left_)
    if (last < own_.sequence) return rank;
  return {};
}

std::vector<int> Dissemination::missing(std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank)
    if (!knows_that_it_came(rank, sequence)) ranks.push_back(rank);
  return ranks;
}

std::vector<int> Dissemination::silent(std::uint64_t sequence) const {
  const auto asked = asked_.find(sequence);
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank)
    if (left_.count(rank) == 0 && (asked == asked_.end() || !has_bit(asked->second.answered, rank)))
      ranks.push_back(rank);
  return ranks;
}

std::vector<Dissemination::Letter> Dissemination::take_letters() {
  for (auto& [sequence, answers] : asked_) {
    if (!std::exchange(answers.is_news, false)) continue;
    std::string body;
    put(body, static_cast<std::uint8_t>(answer_letter));
    for (const bool flag : {answers.bars, answers.is_balanced})
      put(body, static_cast<std::uint8_t>(flag ? 1 : 0));
    put(body, sequence);
    body += answers.came + answers.barred + answers.answered;
    for (const auto& [hash, ranks] : answers.calls) {
      put(body, hash);
      body += ranks;
    }
    for (const int neighbour : neighbours_) letters_.push_back({neighbour, body});
  }
  return std::exchange(letters_, {});
}

Patience::Verdict Patience::look(Dissemination& known, Deadline now, bool broken,
                                 const Network& network) {
  using Outcome = Dissemination::Outcome;
  const Outcome outcome = known.outcome();
  switch (outcome) {
    case Outcome::goes:
      return Verdict::goes;
    case Outcome::differs:
      return Verdict::differs;
    case Outcome::unbalanced:
      return Verdict::unbalanced;
    case Outcome::left:
      return Verdict::left;
    case Outcome::pending:
    case Outcome::barred:
      break;
  }
  if (!asks_) {
    if (!broken && now < deadline_)
      return outcome == Outcome::barred ? Verdict::barred : Verdict::waits;
    asks_ = true;
    since_ = now;
    known.ask(known.last(), true);
  }
  const Verdict given_up = broken ? Verdict::broken : Verdict::late;
  const std::vector<int> silent = known.silent(known.last());
  const bool all_answered = std::ranges::all_of(silent, [&](int rank) {
    return network.is_dead(rank) || (now >= since_ + kLost && network.is_lost(rank));
  });
  if (outcome == Outcome::barred && (all_answered || broken)) return given_up;
  // A dead rank of which no other one has heard. Where all have come, word of their counts may be
  // under way.
  const bool in_vain = all_answered && !silent.empty() && !known.missing(known.last()).empty();
  if (!in_vain && now < since_ + kAnswers) return Verdict::waits;
  if (outcome == Outcome::pending) {
    if (!in_vain && now < since_ + kUnderWay && network.is_under_way()) return Verdict::waits;
    known.give_up();
  }
  return given_up;
}

}}  // namespace c10d::v0
