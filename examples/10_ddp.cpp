// SPDX-License-Identifier: BSD-3-Clause
// Data-parallel training without a framework: a line is fitted to points.   c10d-run -n 4 10_ddp
// Every rank computes gradients on its part of a batch, the reducer makes them the mean over all.
#include <cmath>
#include <cstdio>
#include <exception>

#include "c10d/init.h"
#include "c10d/parallel/ddp.h"
#include "c10d/parallel/reproducible.h"
#include "c10d/parallel/sampler.h"

namespace {

using namespace c10d::parallel;
// Of a batch, spread over the ranks: the same bits at any number of them.
constexpr int kShards = 8;

}  // namespace

int main() try {
  auto group = c10d::init_process_group();
  Reducer reducer(group, {{"slope", {1}}, {"offset", {1}}},
                  {.mode = ReduceMode::reproducible, .shards = kShards});
  DistributedSampler sampler(
      {.samples = 1000, .rank = group.rank(), .size = group.size(), .seed = 1});
  const ShardRange own = shards_of(kShards, group.rank(), group.size());
  const auto x = [](std::int64_t i) { return static_cast<float>(i) / 500 - 1; };

  float weights[2] = {0, 0};
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto batch = sampler.next(48); !batch.empty(); batch = sampler.next(48)) {
      const auto size = static_cast<std::int64_t>(batch.size());
      std::int64_t samples = 0;  // of this rank
      for (int shard = own.first; shard < own.last; ++shard)
        samples += samples_of(size, kShards, shard).count();
      reducer.begin_step({.samples = samples});
      for (int shard = own.first; shard < own.last; ++shard) {
        float slope = 0, offset = 0;
        const SampleRange range = samples_of(size, kShards, shard);
        for (const std::int64_t i : batch.subspan(static_cast<std::size_t>(range.first),
                                                  static_cast<std::size_t>(range.count()))) {
          const float error = weights[0] * x(i) + weights[1] - (2 * x(i) + 1);
          slope += error * x(i);
          offset += error;
        }
        reducer.grad<float>(1)[0] = offset;  // the sum over the shard: finish() divides
        reducer.mark_ready(1);
        reducer.grad<float>(0)[0] = slope;
        reducer.mark_ready(0);
      }
      reducer.finish();
      for (std::size_t p = 0; p < 2; ++p) weights[p] -= 0.3f * reducer.grad<float>(p)[0];
    }
  }
  check_same(group, "weights", std::as_bytes(std::span(weights)));
  if (group.rank() == 0) std::printf("y = %.9g x + %.9g\n", weights[0], weights[1]);
  return std::fabs(weights[0] - 2) < 1e-3f && std::fabs(weights[1] - 1) < 1e-3f ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
