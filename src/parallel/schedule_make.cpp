// SPDX-License-Identifier: BSD-3-Clause
// The generators. Each gives actions without sends and receives.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "c10d/error.h"
#include "src/parallel/schedule_graph.h"

namespace c10d::inline v0::parallel {
namespace {

using enum ActionKind;
using Row = std::vector<Action>;

struct Size {
  int ranks, micro_batches, chunks;
};

Schedule make_gpipe(const Size& size) {
  Schedule schedule;
  for (int rank = 0; rank < size.ranks; ++rank) {
    Row& row = schedule.ranks.emplace_back();
    for (int chunk = 0; chunk < size.chunks; ++chunk)
      for (int i = 0; i < size.micro_batches; ++i)
        row.push_back({chunk * size.ranks + rank, forward, i});
    for (int chunk = size.chunks; chunk-- > 0;)
      for (int i = 0; i < size.micro_batches; ++i)
        row.push_back({chunk * size.ranks + rank, backward, i});
  }
  return schedule;
}

// Micro-batches go through all chunks of a rank in blocks of at most `ranks`: rank r runs ahead by
// as many forwards as it takes until its first gradient can be back.
Schedule make_1f1b(const Size& size) {
  const int block = size.chunks == 1 ? 1 : std::min(size.ranks, size.micro_batches);
  if (size.micro_batches % block != 0)
    throw InvalidArgument(fmt::format(
        "schedule interleaved: {} micro-batches are no multiple of {} ranks; make them one",
        size.micro_batches, size.ranks));
  const int total = size.micro_batches * size.chunks;
  const auto nth = [&](int rank, int n, ActionKind kind) -> Action {
    int chunk = n / block % size.chunks;
    if (kind == backward) chunk = size.chunks - 1 - chunk;
    return {chunk * size.ranks + rank, kind, n / (block * size.chunks) * block + n % block};
  };
  Schedule schedule;
  for (int rank = 0; rank < size.ranks; ++rank) {
    const int behind = size.ranks - 1 - rank;
    const int ahead =
        std::min(total, size.chunks == 1 ? behind : 2 * behind + (size.chunks - 1) * block);
    Row& row = schedule.ranks.emplace_back();
    for (int n = 0; n < ahead; ++n) row.push_back(nth(rank, n, forward));
    for (int n = ahead; n < total; ++n) {
      row.push_back(nth(rank, n, forward));
      row.push_back(nth(rank, n - ahead, backward));
    }
    for (int n = total - ahead; n < total; ++n) row.push_back(nth(rank, n, backward));
  }
  return schedule;
}

// Runs all ranks in lockstep, one action of equal cost per turn, each taking the best that is
// ready. A rank never holds more activations than it has in 1f1b at its worst: as many as there
// are stages. ZB-H1 keeps the order of 1f1b, a forward before a backward as long as rank r is not
// more than ranks - r ahead; ZB-V answers gradients first. Weight gradients take what is left.
class LockstepZeroBubble {
 public:
  LockstepZeroBubble(const Size& size, bool v_shape)
      : size_(size), v_shape_(v_shape), stages_(size.ranks * size.chunks) {
    count_.resize(static_cast<std::size_t>(stages_));
  }

  Schedule run() {
    Schedule schedule{std::vector<Row>(static_cast<std::size_t>(size_.ranks))};
    for (int left = 3 * stages_ * size_.micro_batches; left > 0;) {
      const std::vector<Count> before = count_;
      for (int rank = 0; rank < size_.ranks; ++rank) {
        Action next;
        if (!choose(before, rank, next)) continue;
        schedule.ranks[static_cast<std::size_t>(rank)].push_back(next);
        --left;
      }
    }
    return schedule;
  }

 private:
  // Of a stage: how many micro-batches are done.
  struct Count {
    int forward = 0, input = 0, weight = 0;
  };

  int stage_of(int rank, int chunk) const {
    if (chunk == 0) return rank;
    return v_shape_ ? stages_ - 1 - rank : chunk * size_.ranks + rank;
  }

  bool may_forward(const std::vector<Count>& before, int stage) const {
    const Count& own = before[static_cast<std::size_t>(stage)];
    return own.forward < size_.micro_batches &&
           (stage == 0 || own.forward < before[static_cast<std::size_t>(stage - 1)].forward);
  }

  bool may_input(const std::vector<Count>& before, int stage) const {
    const Count& own = before[static_cast<std::size_t>(stage)];
    return own.input < own.forward &&
           (stage == stages_ - 1 || own.input < before[static_cast<std::size_t>(stage + 1)].input);
  }

  bool choose(const std::vector<Count>& before, int rank, Action& next) {
    int live = 0, ahead = 0, to_forward = -1, to_input = -1, to_weight = -1;
    for (int chunk = 0; chunk < size_.chunks; ++chunk) {
      const int stage = stage_of(rank, chunk);
      const Count& own = before[static_cast<std::size_t>(stage)];
      live += own.forward - own.weight;
      ahead += own.forward - own.input;
      if (may_forward(before, stage)) to_forward = stage;  // the latest stage
      if (may_input(before, stage) && to_input < 0) to_input = stage;
      if (own.weight < own.input &&
          (to_weight < 0 || own.weight < before[static_cast<std::size_t>(to_weight)].weight))
        to_weight = stage;
    }
    if (live >= stages_ || (!v_shape_ && ahead >= size_.ranks - rank)) to_forward = -1;
    const bool forward_first = !v_shape_ || to_input < 0;
    if (to_forward >= 0 && forward_first) return take(next, {to_forward, forward}, &Count::forward);
    if (to_input >= 0) return take(next, {to_input, backward_input}, &Count::input);
    if (to_weight >= 0) return take(next, {to_weight, backward_weight}, &Count::weight);
    return false;
  }

  bool take(Action& next, const Action& action, int Count::*done) {
    next = action;
    next.micro_batch = (count_[static_cast<std::size_t>(action.stage)].*done)++;
    return true;
  }

  const Size size_;
  const bool v_shape_;
  const int stages_;
  std::vector<Count> count_;
};

struct Generator {
  std::string_view name;
  int chunks;  // 0: any
  Schedule (*make)(const Size&);
};

constexpr std::array<Generator, 5> kGenerators = {{
    {"gpipe", 0, make_gpipe},
    {"1f1b", 1, make_1f1b},
    {"interleaved", 0, make_1f1b},
    {"zb-h1", 1, [](const Size& size) { return LockstepZeroBubble(size, false).run(); }},
    {"zb-v", 2, [](const Size& size) { return LockstepZeroBubble(size, true).run(); }},
}};

}  // namespace

std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> names;
  for (const Generator& generator : kGenerators) names.push_back(generator.name);
  return names;
}

Schedule make_schedule(std::string_view name, int ranks, int micro_batches, int chunks) {
  const auto* const generator =
      std::find_if(kGenerators.begin(), kGenerators.end(),
                   [&](const Generator& candidate) { return candidate.name == name; });
  if (generator == kGenerators.end())
    throw InvalidArgument(fmt::format("no schedule is named {}; there are {}", name.substr(0, 64),
                                      fmt::join(schedule_names(), ", ")));
  if (generator->chunks != 0 && generator->chunks != chunks)
    throw InvalidArgument(
        fmt::format("schedule {} has {} stages per rank, not {}", name, generator->chunks, chunks));
  if (ranks < 1 || micro_batches < 1 || chunks < 1)
    throw InvalidArgument(
        fmt::format("schedule {}: {} ranks, {} micro-batches and {} stages per rank must all be "
                    "positive",
                    name, ranks, micro_batches, chunks));
  check_extent(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(chunks),
               static_cast<std::size_t>(micro_batches));
  return generator->make({ranks, micro_batches, chunks});
}

}  // namespace c10d::inline v0::parallel
