// SPDX-License-Identifier: BSD-3-Clause
// The running statistics of a BatchNorm: one update a step from the mean over all shards, weighted
// by their samples; the same bits on every rank and at every number of ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <numeric>

#include "c10d/init.h"
#include "c10d/parallel/ddp.h"
#include "examples/training/trainer/strategy.h"

namespace nn { namespace {

using Values = std::vector<std::vector<float>>;  // by parameter
using Samples = std::vector<std::int64_t>;

constexpr int kShards = 8;

// The statistics are those of the images themselves, parameters 2 and 3, or `of_features`: of what
// a convolution learns to see.
Task task_for(int ranks, bool of_features = false) {
  Options options;
  options.shards = kShards;
  options.optimizer = "sgd";
  options.global_batch_size = 30;
  Task task(options, ranks);
  Model model;
  model.name = "statistics";
  model.sample = task.data.train.sample;
  model.classes = task.data.train.classes;
  const int channels = of_features ? 4 : 1;
  if (of_features) model.append("conv", conv2d(1, channels, 3, 1, 1, false));
  model.append("bn", batch_norm(channels, of_features));
  model.append("flatten", flatten());
  model.append("fc", linear(64 * channels, model.classes));
  task.model = model;
  return task;
}

// Batches that divide by no number of ranks; the last leaves most ranks and shards without samples.
std::vector<Samples> batches() {
  std::vector<Samples> all;
  for (const std::size_t size : {30, 29, 3}) {
    all.emplace_back(size);
    std::iota(all.back().begin(), all.back().end(), 100 * static_cast<std::int64_t>(all.size()));
  }
  return all;
}

Values values_of(const Task& task, Strategy& strategy) {
  const WholeValues whole = strategy.collect();
  Values all;
  for (std::size_t i = 0; i < whole.at.size(); ++i)
    all.emplace_back(whole.at[i], whole.at[i] + task.model.parameters[i].count());
  return all;
}

Values trained(const Task& task, Strategy& strategy) {
  std::uint64_t step = 0;
  for (const Samples& batch : batches()) strategy.step(batch, ++step, 0.05F);
  return values_of(task, strategy);
}

Values trained_on_rank(const std::shared_ptr<c10d::Store>& store, int rank, int ranks) {
  auto group =
      c10d::init_process_group({.backend = "native", .store = store, .rank = rank, .size = ranks});
  const Task task = task_for(ranks);
  Trace trace(false);
  return trained(task, *replicated(task, group, trace));
}

Values trained_alone() {
  auto group = alone();
  const Task task = task_for(1);
  Trace trace(false);
  return trained(task, *local(task, group, trace));
}

// One shard's mean and unbiased variance, times its samples.
std::pair<double, double> weighed(const DataSet& data, const Samples& batch, int shard) {
  const auto range =
      c10d::parallel::samples_of(static_cast<std::int64_t>(batch.size()), kShards, shard);
  std::vector<double> pixels;
  for (std::int64_t i = range.first; i < range.last; ++i) {
    const float* const image = data.values.data() + batch[i] * data.stride;
    pixels.insert(pixels.end(), image, image + data.stride);
  }
  if (pixels.empty()) return {};
  const auto count = static_cast<double>(pixels.size());
  const double mean = std::accumulate(pixels.begin(), pixels.end(), 0.0) / count;
  double squares = 0;
  for (const double pixel : pixels) squares += (pixel - mean) * (pixel - mean);
  const auto samples = static_cast<double>(range.count());
  return {mean * samples, squares / (count - 1) * samples};
}

TEST(RunningStatistics, TakeTheMeanOverShardsWeightedBySamples) {
  const Task task = task_for(1);
  double mean = 0, variance = 1;
  for (const Samples& batch : batches()) {
    double means = 0, variances = 0;
    for (int shard = 0; shard < kShards; ++shard) {
      const auto [one_mean, one_variance] = weighed(task.data.train, batch, shard);
      means += one_mean;
      variances += one_variance;
    }
    mean = 0.9 * mean + 0.1 * means / static_cast<double>(batch.size());
    variance = 0.9 * variance + 0.1 * variances / static_cast<double>(batch.size());
  }
  const Values values = trained_alone();
  EXPECT_NEAR(values[2].at(0), mean, 1e-6);
  EXPECT_NEAR(values[3].at(0), variance, 1e-6);
}

TEST(RunningStatistics, HaveTheSameBitsOnEveryRankAtEveryNumberOfRanks) {
  const Values wanted = trained_alone();
  for (const int ranks : {1, 2, 3, 4, 8}) {
    const std::shared_ptr<c10d::Store> store = c10d::make_hash_store();
    std::vector<std::future<Values>> results;
    for (int rank = 0; rank < ranks; ++rank)
      results.push_back(std::async(std::launch::async, trained_on_rank, store, rank, ranks));
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(results[static_cast<std::size_t>(rank)].get(), wanted)
          << "rank " << rank << " of " << ranks;
  }
}

Samples batch_of(int step) {
  Samples batch(step % 9 == 4 ? 3 : 13);
  std::iota(batch.begin(), batch.end(), 7 * step);
  return batch;
}

Values trained_for_100_steps(const std::shared_ptr<c10d::Store>& store, int rank, int ranks) {
  auto group =
      c10d::init_process_group({.backend = "native", .store = store, .rank = rank, .size = ranks});
  const Task task = task_for(ranks, true);
  Trace trace(false);
  const auto strategy = replicated(task, group, trace);
  Values values = values_of(task, *strategy);
  for (int step = 1; step <= 100; ++step) {
    const Values before = std::exchange(values, {});
    strategy->step(batch_of(step), static_cast<std::uint64_t>(step), 0.05F);
    values = values_of(task, *strategy);
    std::vector<float> all;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NE(values[i], before[i]) << "parameter " << i << " in step " << step;
      all.insert(all.end(), values[i].begin(), values[i].end());
    }
    c10d::parallel::check_same(group, "weights and statistics", std::as_bytes(std::span(all)));
  }
  return values;
}

// The hash of all, statistics included, after each of 100 steps; some ranks lack samples in
// some of them.
TEST(RunningStatistics, AndWeightsAreTheSameOnAllRanksAfterEachOf100Steps) {
  constexpr int kRanks = 4;
  const std::shared_ptr<c10d::Store> store = c10d::make_hash_store();
  std::vector<std::future<Values>> results;
  for (int rank = 0; rank < kRanks; ++rank)
    results.push_back(std::async(std::launch::async, trained_for_100_steps, store, rank, kRanks));
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(results[static_cast<std::size_t>(rank)].get().size(), 7u) << "rank " << rank;
}

}}  // namespace nn
