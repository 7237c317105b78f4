// SPDX-License-Identifier: BSD-3-Clause
// What Fsdp takes of memory: as planned, and as the allocator of this program counts it.
#include "tests/contract/ranks.h"
#include "tests/counted_allocations.h"
#include "tests/parallel/even_units.h"

namespace c10d::parallel { namespace {

constexpr std::size_t kBlock = 4096 * sizeof(float);
constexpr std::size_t kAll = (32 + 64 + 16) * kBlock, kLargest = 64 * kBlock;
std::vector<Unit> large_units() { return even_units({32, 64, 16}); }

// (parameters + gradients + optimizer) / W + two units; the optimizer has two moments, as Adam.
std::size_t bound(int size) { return 4 * kAll / static_cast<std::size_t>(size) + 2 * kLargest; }

void backward(Fsdp& fsdp, std::size_t unit) {
  fsdp.unshard(unit);
  for (int shard = fsdp.owned().first; shard < fsdp.owned().last; ++shard) {
    for (float& value : fsdp.next_gradient(unit)) value = 1;
    fsdp.gradient_done(unit);
  }
  fsdp.reduce(unit);
  fsdp.reshard(unit);
}

void train(Fsdp& fsdp, std::vector<std::vector<float>>& moments) {
  for (std::size_t unit = 0; unit < fsdp.units().size(); ++unit) {
    fsdp.unshard(unit);
    fsdp.reshard(unit);
  }
  for (std::size_t unit = fsdp.units().size(); unit-- > 0;) backward(fsdp, unit);
  fsdp.end_step();
  for (std::size_t unit = 0; unit < fsdp.units().size(); ++unit)
    for (std::size_t i = 0; i < fsdp.shard_elements(unit); ++i)
      fsdp.shard(unit)[i] -= moments[unit][2 * i] += fsdp.gradient(unit)[i];
  fsdp.publish();
}

std::vector<std::vector<float>> moments_of(const Fsdp& fsdp) {
  std::vector<std::vector<float>> moments;
  for (std::size_t unit = 0; unit < fsdp.units().size(); ++unit)
    moments.emplace_back(2 * fsdp.shard_elements(unit));
  return moments;
}

// Of all ranks, which are threads of this program, with all else that C++ allocates meanwhile.
std::size_t peak_of_training(int size, const FsdpOptions& options) {
  std::size_t before = 0, peak = 0;
  contract::run_ranks("native", size, [&](ProcessGroup& group) {
    const std::vector<Unit> units = large_units();
    group.barrier();
    if (group.rank() == 0) counted::peak_bytes = before = counted::live_bytes;
    group.barrier();
    Fsdp fsdp(group, units, options);
    auto moments = moments_of(fsdp);
    for (int step = 0; step < 2; ++step) train(fsdp, moments);
    group.barrier();
    if (group.rank() == 0) peak = counted::peak_bytes;
    group.barrier();
  });
  return peak - before;
}

// And the optimizer's two moments.
std::size_t planned(int rank, int size, const FsdpOptions& options) {
  const std::vector<Unit> units = large_units();
  const std::size_t share =
      options.keep.optimizer == Kept::sharded ? kAll / static_cast<std::size_t>(size) : kAll;
  return plan_memory(units, options, rank, size).total() + 2 * share;
}

// The unit that is reduced last leaves its gradient in the buffer.
TEST(ShardedMemory, IsTheShareAndTwoUnitsLessAGradient) {
  for (const int size : {2, 4, 8}) {
    contract::run_ranks("native", size, [&](ProcessGroup& group) {
      Fsdp fsdp(group, large_units());
      auto moments = moments_of(fsdp);
      const FsdpMemory plan = plan_memory(fsdp.units(), {}, group.rank(), size);
      for (int step = 0; step < 3; ++step) {
        train(fsdp, moments);
        EXPECT_EQ(fsdp.memory(), plan) << "after step " << step;
      }
      EXPECT_EQ(planned(group.rank(), size, {}),
                bound(size) - 32 * kBlock / static_cast<std::size_t>(size));
    });
  }
}

TEST(ShardedMemory, IsWithinTheShareAndTwoUnitsByTheAllocator) {
  for (const int size : {2, 4, 8}) {
    const auto ranks = static_cast<std::size_t>(size);
    const std::size_t peak = peak_of_training(size, {});
    EXPECT_GE(peak, ranks * planned(0, size, {})) << "the allocator saw the engine";
    EXPECT_LE(peak, ranks * bound(size));
    std::printf("ZeRO-3, %d ranks: %.3f MiB per rank by the allocator, bound %.3f\n", size,
                static_cast<double>(peak) / size / (1 << 20),
                static_cast<double>(bound(size)) / (1 << 20));
  }
}

TEST(ShardedMemory, ThePlanIsThePeakOfEveryStageByTheAllocator) {
  for (const Keep& keep : {kReplicated, kZero1, kZero2, kZero3})
    for (const FsdpOptions& options :
         {FsdpOptions{.keep = keep}, FsdpOptions{.keep = keep, .prefetch_bytes = kLargest},
          FsdpOptions{.keep = keep, .reduce = DType::bf16, .gradient_buffers = 2}}) {
      const auto plan = static_cast<double>(4 * planned(0, 4, options));
      EXPECT_NEAR(static_cast<double>(peak_of_training(4, options)), plan, plan / 20);
    }
}

// Each unit once, however much may be gathered ahead.
TEST(ShardedMemory, NoMoreIsGatheredThanThereIs) {
  const auto units = even_units({16, 3});
  const std::size_t largest = 16 * kBlock;
  const auto gathered = [&](std::size_t prefetch_bytes, DType compute) {
    return plan_memory(units, {.compute = compute, .prefetch_bytes = prefetch_bytes}, 0, 2)
        .gathered;
  };
  EXPECT_EQ(gathered(largest - 1, DType::f32), largest);
  EXPECT_EQ(gathered(largest, DType::f32), 2 * largest);
  EXPECT_EQ(gathered(std::size_t{1} << 36, DType::f32), 2 * largest);
  EXPECT_EQ(gathered(SIZE_MAX, DType::bf16), largest);
  contract::run_ranks("native", 2, [&](ProcessGroup& group) {
    const Fsdp fsdp(group, units, {.prefetch_bytes = std::size_t{1} << 36});
    EXPECT_EQ(fsdp.memory().gathered, 2 * largest);
  });
}

TEST(ShardedMemory, ThePlanHoldsForEveryStage) {
  const auto units = even_units({16, 3});
  contract::run_ranks("native", 3, [&](ProcessGroup& group) {
    for (const Keep& keep : {kReplicated, kZero1, kZero2, kZero3})
      for (FsdpOptions options :
           {FsdpOptions{.keep = keep, .mode = ReduceMode::reproducible, .shards = 8},
            FsdpOptions{.keep = keep,
            .mode = ReduceMode::reproducible,
            .shards = 8,
            .prefetch_bytes = 1 << 20,
            .gradient_buffers = 2}})
        for (const DType compute : {DType::f32, DType::bf16}) {
          options.compute = compute;
          Fsdp fsdp(group, units, options);
          for (std::size_t unit = units.size(); unit-- > 0;) backward(fsdp, unit);
          fsdp.end_step();
          EXPECT_EQ(fsdp.memory(), plan_memory(units, options, group.rank(), 3));
        }
  });
  const std::size_t bytes = 19 * kBlock;
  const auto total = [&](Keep keep) { return plan_memory(units, {.keep = keep}, 0, 8).total(); };
  EXPECT_EQ(total(kReplicated), 2 * bytes);
  EXPECT_EQ(total(kZero1), 2 * bytes);
  EXPECT_LT(total(kZero2), 2 * bytes);
  EXPECT_LT(total(kZero3), total(kZero2) + 16 * kBlock);
}

}}  // namespace c10d::parallel
