// SPDX-License-Identifier: BSD-3-Clause
// What --plan says is what the allocator counts, with what the kernel counts of shared memory.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <map>
#include <numeric>
#include <regex>

#include "c10d/init.h"
#include "c10d/parallel/checkpoint.h"
#include "examples/training/trainer/strategy.h"
#include "tests/counted_allocations.h"
#include "tests/temporary_directory.h"

namespace nn { namespace {

using c10d::counted::live_bytes;
using c10d::counted::peak_bytes;

constexpr int kRanks = 2;  // threads of this program

// Wide layers and few samples: activations, which the plan leaves out, are less than a hundredth.
// ZeRO-0: replicated by a Reducer.
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

// Bytes that the kernel holds for what ranks registered by allocate(), by file: fds of both ranks
// lead there. The memory in which a group meets, 1.6 MiB per rank, is no matter of the plan.
std::map<ino_t, std::size_t> shared_bytes() {
  std::map<ino_t, std::size_t> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat file {};
    if (!std::filesystem::read_symlink(entry, error).string().starts_with("/memfd:c10d-heap/"))
      continue;
    if (::stat(entry.path().c_str(), &file) == 0)
      files[file.st_ino] = static_cast<std::size_t>(file.st_blocks) * 512;
  }
  return files;
}

std::size_t shared_sum() {
  std::size_t sum = 0;
  for (const auto& [file, bytes] : shared_bytes()) sum += bytes;
  return sum;
}

// Of both ranks.
struct Bytes {
  double steps = 0, with_copy = 0;
};

// The last columns of a line of --plan: their sum, and the copy of each rank that writes.
Bytes planned(const Task& task) {
  const int zero = task.options.zero;
  const std::string text = memory_plan(task, kRanks);
  const std::regex line((zero == 0 ? "DDP" : "ZeRO-" + std::to_string(zero)) +
                        ".* ([0-9.]+) +([0-9.]+)\n");
  std::smatch found;
  if (!std::regex_search(text, found, line)) return {};
  const int writers = zero == 0 || task.options.replicas > 1 ? 1 : kRanks;
  const double steps = kRanks * std::stod(found[1]) * (1 << 20);
  return {steps, steps + writers * std::stod(found[2]) * (1 << 20)};
}

// Of two steps, then of one after a checkpoint, as rank 0 counts them for all.
Bytes peaks_of_rank(const std::shared_ptr<c10d::Store>& store, int rank, const Task& task,
                    const std::string& folder) {
  auto group =
      c10d::init_process_group({.backend = "native", .store = store, .rank = rank, .size = kRanks});
  std::vector<std::int64_t> batch(4);
  std::iota(batch.begin(), batch.end(), 0);
  Trace trace(false);
  std::size_t before = 0, shared_before = 0;
  Bytes peaks;
  const auto on_rank_0 = [&](const std::function<void()>& count) {
    group.barrier();
    if (rank == 0) count();
    group.barrier();
  };
  on_rank_0([&] {
    peak_bytes = before = live_bytes;
    shared_before = shared_sum();
  });
  const auto strategy =
      task.options.zero == 0 ? replicated(task, group, trace) : sharded(task, group, trace);
  const auto peak = [&] {
    return static_cast<double>(peak_bytes - before) +
           static_cast<double>(shared_sum() - shared_before);
  };
  std::map<ino_t, std::size_t> shared;
  strategy->step(batch, 1, 0.001F);
  on_rank_0([&] { shared = shared_bytes(); });
  strategy->step(batch, 2, 0.001F);
  on_rank_0([&] {
    EXPECT_EQ(shared_bytes(), shared) << "registered once: no peak in between was missed";
    peaks.steps = peak();
  });
  c10d::parallel::AsyncSaver saver(group, folder);
  saver.save({.parts = strategy->parts()});
  saver.wait();
  strategy->step(batch, 3, 0.001F);
  on_rank_0([&] { peaks.with_copy = peak(); });
  return peaks;
}

TEST(Plan, IsWhatTheAllocatorCounts) {
  for (const Task& task :
       {task_for(0, 1, false), task_for(0, 1, true), task_for(1, 1, false), task_for(2, 1, false),
        task_for(3, 1, false), task_for(1, 1, true), task_for(3, 2, true)}) {
    const c10d::TemporaryDirectory folder;
    const std::shared_ptr<c10d::Store> store = c10d::make_hash_store();
    auto other = std::async(std::launch::async, peaks_of_rank, store, 1, task, folder.path());
    const Bytes peaks = peaks_of_rank(store, 0, task, folder.path());
    other.get();
    const Bytes plan = planned(task);
    const double mib = kRanks * (1 << 20);
    std::printf("ZeRO-%d, %d replicas, %s: planned %.2f and %.2f, counted %.2f and %.2f MiB\n",
                task.options.zero, task.options.replicas,
                task.options.reproducible ? "reproducible" : "fast", plan.steps / mib,
                plan.with_copy / mib, peaks.steps / mib, peaks.with_copy / mib);
    EXPECT_NEAR(peaks.steps, plan.steps, plan.steps / 20);
    EXPECT_NEAR(peaks.with_copy, plan.with_copy, plan.with_copy / 20);
  }
}

}}  // namespace nn
