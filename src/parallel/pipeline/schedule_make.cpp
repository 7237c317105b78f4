// SPDX-License-Identifier: BSD-3-Clause
// The generators. Each gives actions without sends and receives.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/parallel/common/throw_invalid.h"
#include "src/parallel/pipeline/schedule_graph.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

using enum ActionKind;
using ActionRow = std::vector<Action>;

struct ScheduleSize {
  int ranks, micro_batches, chunks;
};

Schedule make_gpipe(const ScheduleSize& size) {
  Schedule schedule;
  for (int rank = 0; rank < size.ranks; ++rank) {
    ActionRow& row = schedule.ranks.emplace_back();
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
Schedule make_1f1b(const ScheduleSize& size) {
  const int block = size.chunks == 1 ? 1 : std::min(size.ranks, size.micro_batches);
  if (size.micro_batches % block != 0)
    throw_invalid(
        "schedule interleaved: {} micro-batches are no multiple of {} ranks; make them one",
        size.micro_batches, size.ranks);
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
    ActionRow& row = schedule.ranks.emplace_back();
    for (int n = 0; n < ahead; ++n) row.push_back(nth(rank, n, forward));
    for (int n = ahead; n < total; ++n) {
      row.push_back(nth(rank, n, forward));
      row.push_back(nth(rank, n - ahead, backward));
    }
    for (int n = total - ahead; n < total; ++n) row.push_back(nth(rank, n, backward));
  }
  return schedule;
}

// Runs all ranks in lockstep, one action of equal cost per turn. A forward comes first, as long as
// rank r is at most ranks - r of them ahead of its input gradients, as in 1f1b, and at most `ranks`
// ahead of its weight gradients; these take what is left.
Schedule make_zb_h1(const ScheduleSize& size) {
  struct Count {
    int forward = 0, input = 0, weight = 0;
  };
  Schedule schedule{std::vector<ActionRow>(static_cast<std::size_t>(size.ranks))};
  std::vector<Count> done(static_cast<std::size_t>(size.ranks));
  for (int left = 3 * size.ranks * size.micro_batches; left > 0;) {
    const std::vector<Count> before = done;
    for (int rank = 0; rank < size.ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const bool last = rank == size.ranks - 1;
      Count& own = done[at];
      const int may_forward = rank == 0 ? size.micro_batches : before[at - 1].forward;
      const int may_input = last ? own.forward : std::min(own.forward, before[at + 1].input);
      ActionRow& row = schedule.ranks[at];
      if (own.forward < may_forward && own.forward - own.input < size.ranks - rank &&
          own.forward - own.weight < size.ranks)
        row.push_back({rank, forward, own.forward++});
      else if (own.input < may_input)
        row.push_back({rank, backward_input, own.input++});
      else if (own.weight < own.input)
        row.push_back({rank, backward_weight, own.weight++});
      else
        continue;
      --left;
    }
  }
  return schedule;
}

// One rank of ZB-V: its stage on the way down the V, and the one on the way up.
class ZbVRow {
 public:
  ZbVRow(const ScheduleSize& size, int rank)
      : down_{rank}, up_{2 * size.ranks - 1 - rank}, micro_batches_(size.micro_batches) {
    const int behind = size.ranks - rank;  // ranks from here to the turn of the V
    // The phases need that many micro-batches; those that are not there are left out.
    const int all = std::max(size.micro_batches, 2 * size.ranks - 1);
    for (int i = 0; i < 2 * behind - 1; ++i) add(down_, forward);
    for (int i = 0; i < rank; ++i) {
      add(up_, forward);
      add(down_, forward);
    }
    for (int i = 0; i < behind; ++i) add_up();
    while (up_.forwards < all) {
      if (down_.forwards < all) add(down_, forward);
      add(down_, backward_input);
      add(down_, backward_weight);
      add_up();
    }
    for (int i = 0; i < rank; ++i) {
      add(down_, backward_input);
      add(up_, backward_input);
    }
    for (int i = 0; i < behind; ++i) {
      add(down_, backward_input);
      add(down_, backward_weight);
    }
    while (up_.weights < all) add(up_, backward_weight);
    while (down_.weights < all) add(down_, backward_weight);
  }

  ActionRow take() { return std::move(row_); }

 private:
  struct Progress {
    int stage;
    int forwards = 0, inputs = 0, weights = 0;
  };

  void add(Progress& of, ActionKind kind) {
    int& next = kind == forward ? of.forwards : kind == backward_input ? of.inputs : of.weights;
    if (next < micro_batches_) row_.push_back({of.stage, kind, next});
    ++next;
  }

  void add_up() {
    add(up_, forward);
    add(up_, backward_input);
    add(up_, backward_weight);
  }

  Progress down_, up_;
  const int micro_batches_;
  ActionRow row_;
};

Schedule make_zb_v(const ScheduleSize& size) {
  Schedule schedule;
  for (int rank = 0; rank < size.ranks; ++rank) schedule.ranks.push_back(ZbVRow(size, rank).take());
  return schedule;
}

struct ScheduleGenerator {
  std::string_view name;
  int chunks;  // 0: any
  Schedule (*make)(const ScheduleSize&);
};

constexpr std::array<ScheduleGenerator, 5> kGenerators = {{
    {"gpipe", 0, make_gpipe},
    {"1f1b", 1, make_1f1b},
    {"interleaved", 0, make_1f1b},
    {"zb-h1", 1, make_zb_h1},
    {"zb-v", 2, make_zb_v},
}};

}  // namespace

std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> names;
  for (const ScheduleGenerator& generator : kGenerators) names.push_back(generator.name);
  return names;
}

Schedule make_schedule(std::string_view name, int ranks, int micro_batches, int chunks) {
  const auto* const generator =
      std::find_if(kGenerators.begin(), kGenerators.end(),
                   [&](const ScheduleGenerator& candidate) { return candidate.name == name; });
  if (generator == kGenerators.end())
    throw_invalid("no schedule is named {}; there are {}", name.substr(0, 64),
                  fmt::join(schedule_names(), ", "));
  if (generator->chunks != 0 && generator->chunks != chunks)
    throw_invalid("schedule {} has {} stages per rank, not {}", name, generator->chunks, chunks);
  if (ranks < 1 || micro_batches < 1 || chunks < 1)
    throw_invalid(
        "schedule {}: {} ranks, {} micro-batches and {} stages per rank must all be positive", name,
        ranks, micro_batches, chunks);
  check_extent(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(chunks),
               static_cast<std::size_t>(micro_batches));
  return generator->make({ranks, micro_batches, chunks});
}

}}}  // namespace c10d::v0::parallel
