// SPDX-License-Identifier: BSD-3-Clause
// What neighbours on other hosts may say of calls, once each has proved to be a rank: a group, then
// what happens in it, byte by byte. Letters may be wrong, but not harm: what a rank carried with a
// call is as long as everybody's, and no answer of the state machine is about a rank that is not.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "src/control/dissemination.h"
#include "src/net/bytes.h"
#include "src/net/mesh/rank_grid.h"

namespace {

using namespace c10d;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : left_(reinterpret_cast<const char*>(data), size) {}
  bool is_over() const { return left_.empty(); }
  unsigned byte() {
    if (left_.empty()) return 0;
    const auto value = static_cast<unsigned char>(left_.front());
    left_.remove_prefix(1);
    return value;
  }
  std::string_view bytes(std::size_t most) {
    const std::string_view taken = left_.substr(0, most);
    left_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view left_;
};

constexpr std::uint8_t kStepLetter = 1;

// As a neighbour writes it that carries as much.
std::string step_letter(Input& input, const Coming& own, std::size_t carried) {
  std::string body;
  put(body, kStepLetter);
  put(body, static_cast<std::uint8_t>(input.byte() % 8));
  for (const std::uint64_t word :
       {own.sequence + input.byte() % 3, own.hash, std::uint64_t{0}, std::uint64_t{0}})
    put(body, word);
  body.append(reinterpret_cast<const char*>(&own.signature), sizeof own.signature);
  body.append(carried * (input.byte() % 9), 'c');
  return body;
}

void check(bool right) {
  if (!right) std::abort();
}

void check_ranks(const std::vector<int>& ranks, int size) {
  for (const int rank : ranks) check(rank >= 0 && rank < size);
}

void check_all(Dissemination& known, std::uint64_t sequence, std::size_t carried, int size) {
  known.outcome();
  if (known.has_carried() && known.last() != 0)
    for (int rank = 0; rank < size; ++rank) check(known.carried(rank).size() == carried);
  check_ranks(known.missing(sequence), size);
  check_ranks(known.silent(sequence), size);
  check_ranks(known.ranks_with(known.difference().second.hash), size);
  if (const auto left = known.left_before()) check_ranks({*left}, size);
  known.is_settled();
  for (const Dissemination::Letter& letter : known.take_letters()) check_ranks({letter.to}, size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  std::vector<std::string> hosts;
  for (unsigned i = 0, ranks = 2 + input.byte() % 9, each = 1 + input.byte() % 4; i < ranks; ++i)
    hosts.push_back(std::to_string(i / each));
  const RankGrid grid(hosts);
  const int ranks = grid.size(), own_rank = static_cast<int>(input.byte()) % ranks;
  Dissemination known(own_rank, grid);
  const std::string carried(input.byte() % 17, 'o');
  Coming own{.hash = 7, .carried = carried};
  while (!input.is_over()) {
    const unsigned what = input.byte();
    const int from = static_cast<int>(input.byte()) % ranks;
    switch (what % 6) {
      case 0:
        ++own.sequence;
        known.come(own);
        break;
      case 1:
        known.receive(from, step_letter(input, own, carried.size()));
        break;
      case 2:
        known.receive(from, input.bytes(input.byte()));
        break;
      case 3:
        known.ask(own.sequence + input.byte() % 3, input.byte() % 2 != 0);
        break;
      case 4:
        known.leave(from, input.byte());
        break;
      default:
        if (known.last() != 0) known.give_up();
    }
    check_all(known, own.sequence, carried.size(), ranks);
  }
  return 0;
}
