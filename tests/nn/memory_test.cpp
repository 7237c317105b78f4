// SPDX-License-Identifier: BSD-3-Clause
// What --plan says of sharded training is what the allocator counts.
#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <regex>

#include "c10d/init.h"
#include "examples/nn/strategy.h"
#include "tests/counted_allocations.h"

namespace nn {
namespace {

using c10d::counted::live_bytes;
using c10d::counted::peak_bytes;

constexpr int kRanks = 2;  // threads of this program

// Wide layers and few samples: activations, which the plan leaves out, are less than a hundredth.
Task task_for(int zero, int replicas, bool reproducible) {
  Options options;
  options.zero = zero;
  options.replicas = replicas;
  options.reproducible = reproducible;
  options.shards = 4;
  options.global_batch_size = 4;
  Task task(options, kRanks);
  Model model;
  model.name = "wide";
  model.sample = task.data.train.sample;
  model.classes = task.data.train.classes;
  model.append("flatten", flatten());
  model.append("fc1", linear(64, 1024));
  model.append("relu1", relu());
  model.append("fc2", linear(1024, 1024));
  model.append("relu2", relu());
  model.append("fc3", linear(1024, 512));
  model.append("relu3", relu());
  model.append("fc4", linear(512, model.classes));
  task.model = model;
  return task;
}

// The last column of a line of --plan, in bytes.
double planned(const Task& task) {
  const std::string text = memory_plan(task, kRanks);
  const std::regex line("ZeRO-" + std::to_string(task.options.zero) + ".* ([0-9.]+)\n");
  std::smatch found;
  if (!std::regex_search(text, found, line)) return 0;
  return std::stod(found[1]) * (1 << 20);
}

// Of the strategy over two steps, per rank; 0 but on rank 0, which counts for all.
std::size_t peak_of_rank(const std::shared_ptr<c10d::Store>& store, int rank, const Task& task) {
  auto group =
      c10d::init_process_group({.backend = "native", .store = store, .rank = rank, .size = kRanks});
  std::vector<std::int64_t> batch(4);
  std::iota(batch.begin(), batch.end(), 0);
  Trace trace(false);
  std::size_t before = 0, peak = 0;
  group.barrier();
  if (rank == 0) peak_bytes = before = live_bytes;
  group.barrier();
  const auto strategy = sharded(task, group, trace);
  for (std::uint64_t step = 1; step <= 2; ++step) strategy->step(batch, step, 0.001F);
  group.barrier();
  if (rank == 0) peak = peak_bytes;
  group.barrier();
  return (peak - before) / kRanks;
}

TEST(Plan, IsWhatTheAllocatorCounts) {
  for (const Task& task : {task_for(1, 1, false), task_for(2, 1, false), task_for(3, 1, false),
                           task_for(1, 1, true), task_for(3, 2, true)}) {
    const std::shared_ptr<c10d::Store> store = c10d::make_hash_store();
    auto other = std::async(std::launch::async, peak_of_rank, store, 1, task);
    const auto peak = static_cast<double>(peak_of_rank(store, 0, task));
    other.get();
    std::printf("ZeRO-%d, %d replicas, %s: planned %.2f, counted %.2f MiB\n", task.options.zero,
                task.options.replicas, task.options.reproducible ? "reproducible" : "fast",
                planned(task) / (1 << 20), peak / (1 << 20));
    EXPECT_NEAR(peak, planned(task), planned(task) / 20);
  }
}

}  // namespace
}  // namespace nn
