// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace c10d { inline namespace v0 {

// The ranks of each host, ascending; hosts in the order of their lowest ranks. `hosts`: by rank,
// equal for ranks of one host.
std::vector<std::vector<int>> ranks_by_host(const std::vector<std::string>& hosts);

// In which steps word of every rank reaches all: first among the ranks of each host, then between
// hosts, each rank with the ranks of its place. In a step a rank tells one rank and hears from one.
// So P ranks on each of H hosts take ceil(log2 P) steps inside hosts and ceil(log2 H) between them.
class RankGrid {
 public:
  // `hosts`: as above. Where hosts have different numbers of ranks, all ranks are treated as those
  // of one: ceil(log2(ranks)) steps.
  explicit RankGrid(const std::vector<std::string>& hosts);
  // Of ranks of one host.
  explicit RankGrid(int size)
      : RankGrid(std::vector<std::string>(static_cast<std::size_t>(size))) {}

  // Among `count` hosts, or places of a host, to the one `distance` (2^k) ahead.
  struct Step {
    int distance, count;
    int ranks;  // that each of them stands for: 1 inside a host, then the ranks of a host
    // How many ranks have been heard of before the step, and how many are told of in it.
    int heard() const noexcept { return distance * ranks; }
    int told() const noexcept {
      return (distance < count - distance ? distance : count - distance) * ranks;
    }
    bool is_last() const noexcept { return 2 * distance >= count; }  // in the host, or between them
  };
  const std::vector<Step>& steps() const noexcept { return steps_; }
  int size() const noexcept { return static_cast<int>(ranks_.size()); }

  // The rank that `rank` tells in a step, and the one that it hears from.
  int ahead(int rank, const Step& step) const noexcept { return moved(rank, step, step.distance); }
  int behind(int rank, const Step& step) const noexcept {
    return moved(rank, step, step.count - step.distance);
  }
  // Ranks count backwards from `rank`, which is 0, in the order in which it hears of them: after
  // any step it has heard of all up to some number.
  int order(int rank, int other) const noexcept;
  int rank_at(int rank, int order) const noexcept;

  // Whom a rank tells or hears from, ascending: 2 for each step at most. In a group of few ranks
  // all others, so that two that die at once do not keep word of the rest from each other: in
  // larger groups each rank has three neighbours at least.
  static constexpr int kFew = 8;
  std::vector<int> neighbours_of(int rank) const;

 private:
  int moved(int rank, const Step& step, int by) const noexcept;

  std::vector<int> positions_;  // by rank: its host times the places of a host, and its place
  std::vector<int> ranks_;      // by position
  int places_ = 1;
  std::vector<Step> steps_;
};

}}  // namespace c10d::v0
