// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "c10d/error.h"

namespace c10d::parallel { namespace {

using Samples = std::vector<std::int64_t>;

Samples all_of(DistributedSampler& sampler, std::int64_t batch) {
  Samples taken;
  for (auto some = sampler.next(batch); !some.empty(); some = sampler.next(batch))
    taken.insert(taken.end(), some.begin(), some.end());
  return taken;
}

// How often each sample is taken by all ranks together; checks the sizes of the parts.
std::map<std::int64_t, int> taken_by_all(std::int64_t samples, int size, Uneven uneven) {
  std::map<std::int64_t, int> times;
  std::int64_t least = samples, most = 0;
  for (int rank = 0; rank < size; ++rank) {
    const DistributedSampler sampler(
        {.samples = samples, .rank = rank, .size = size, .seed = 3, .uneven = uneven});
    const Samples own = sampler.indices();
    least = std::min(least, static_cast<std::int64_t>(own.size()));
    most = std::max(most, static_cast<std::int64_t>(own.size()));
    for (const std::int64_t sample : own) ++times[sample];
  }
  EXPECT_LE(most - least, uneven == Uneven::exact ? 1 : 0) << samples << " on " << size;
  return times;
}

TEST(Sampler, PartsAreDisjointAndWholeForEveryCount) {
  for (std::int64_t samples = 0; samples <= 200; ++samples)
    for (int size = 1; size <= 9; ++size) {
      const auto count = [&](Uneven uneven) {
        std::int64_t all = 0, different = 0;
        for (const auto& [sample, times] : taken_by_all(samples, size, uneven)) {
          ASSERT_TRUE(sample >= 0 && sample < samples);
          all += times;
          ++different;
        }
        const std::int64_t rest = samples % size;
        const std::int64_t padding = samples == 0 || rest == 0 ? 0 : size - rest;
        EXPECT_EQ(different, uneven == Uneven::drop ? samples - rest : samples);
        EXPECT_EQ(all, different + (uneven == Uneven::pad ? padding : 0));
      };
      count(Uneven::exact);
      count(Uneven::pad);
      count(Uneven::drop);
    }
}

TEST(Sampler, OrderChangesByEpochAndSeedOnly) {
  const auto order = [](int size, std::uint64_t seed, std::uint64_t epoch) {
    DistributedSampler sampler({.samples = 100, .rank = size - 1, .size = size, .seed = seed});
    sampler.set_epoch(epoch);
    return all_of(sampler, 7);
  };
  const Samples base = order(1, 5, 2);
  for (int size = 2; size <= 9; ++size) EXPECT_EQ(order(size, 5, 2), base);
  EXPECT_NE(order(1, 5, 3), base);
  EXPECT_NE(order(1, 6, 2), base);
  Samples sorted = base;
  std::sort(sorted.begin(), sorted.end());
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(sorted[static_cast<std::size_t>(i)], i);
}

// Every order of three comes up about equally often.
TEST(Sampler, ShuffleIsFair) {
  std::map<Samples, int> seen;
  DistributedSampler sampler({.samples = 3});
  for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) {
    sampler.set_epoch(epoch);
    ++seen[all_of(sampler, 3)];
  }
  EXPECT_EQ(seen.size(), 6u);
  for (const auto& [order, times] : seen) EXPECT_NEAR(times, 1000, 150);  // five deviations
}

TEST(Sampler, UnshuffledIsInOrder) {
  const DistributedSampler sampler(
      {.samples = 5, .rank = 1, .size = 2, .shuffle = false, .uneven = Uneven::pad});
  EXPECT_EQ(sampler.indices(), (Samples{1, 3, 0}));
}

// A run that stops after some batches and goes on with other ranks takes each sample once.
TEST(Sampler, CursorSurvivesAResumeWithOtherRanks) {
  for (const int later : {1, 2, 5}) {
    DistributedSampler before({.samples = 101, .rank = 2, .size = 3, .seed = 9});
    before.set_epoch(4);
    Samples taken;
    for (int i = 0; i < 4; ++i) {
      const auto batch = before.next(10);
      taken.insert(taken.end(), batch.begin(), batch.end());
    }
    EXPECT_EQ(before.cursor(), 40);
    for (int rank = 0; rank < later; ++rank) {
      DistributedSampler after({.samples = 101, .rank = rank, .size = later, .seed = 9});
      after.set_epoch(before.epoch());
      after.seek(before.cursor());
      const Samples rest = after.indices();
      taken.insert(taken.end(), rest.begin(), rest.end());
    }
    std::sort(taken.begin(), taken.end());
    ASSERT_EQ(taken.size(), 101u);
    EXPECT_EQ(std::adjacent_find(taken.begin(), taken.end()), taken.end());
  }
}

// indices() is a look at the rest; what next() gave stays until the next epoch.
TEST(Sampler, TakesByNextAlone) {
  DistributedSampler sampler({.samples = 10, .rank = 1, .size = 3, .seed = 4});
  EXPECT_EQ(sampler.epoch(), 0u);
  EXPECT_EQ(sampler.total(), 10);
  const auto first = sampler.next(4);
  const Samples copy(first.begin(), first.end());
  const Samples rest = sampler.indices();
  EXPECT_EQ(sampler.cursor(), 4);
  EXPECT_EQ(sampler.indices(), rest);
  const auto second = sampler.next(100);
  EXPECT_EQ(second.size(), 6u);
  EXPECT_EQ(rest, (Samples{second[1], second[4]}));
  EXPECT_TRUE(sampler.next(1).empty());
  EXPECT_EQ(sampler.cursor(), 10);
  EXPECT_TRUE(sampler.indices().empty());
  sampler.seek(2);
  EXPECT_EQ(sampler.epoch(), 0u);
  EXPECT_EQ(sampler.next(1)[0], copy[2]);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), copy.begin()));
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.cursor(), 0);
  EXPECT_EQ(sampler.next(1)[0], copy[0]);
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(DistributedSampler({.samples = -1}), InvalidArgument);
  EXPECT_THROW(DistributedSampler({.samples = 5, .rank = 2, .size = 2}), InvalidArgument);
  EXPECT_THROW(DistributedSampler({.samples = 5, .rank = 0, .size = 0}), InvalidArgument);
  DistributedSampler sampler({.samples = 5});
  EXPECT_THROW(sampler.seek(6), InvalidArgument);
  EXPECT_THROW(sampler.seek(-1), InvalidArgument);
  EXPECT_THROW(sampler.next(0), InvalidArgument);
}

}}  // namespace c10d::parallel
