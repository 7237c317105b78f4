// SPDX-License-Identifier: BSD-3-Clause
// Ranks as processes, for the backends that want it so: processes <backend> under a launcher. Ends
// with 0 when the weights have the bits of one process.
#include <cstdio>
#include <exception>

#include "c10d/init.h"
#include "c10d/parallel/ddp.h"
#include "tests/parallel/model.h"

using namespace c10d::parallel;

int main(int argc, char** argv) try {
  constexpr int kShards = 8;
  constexpr std::int64_t kSteps = 30;
  auto group = c10d::init_process_group({.backend = argc > 1 ? argv[1] : "native"});
  Weights weights = model_weights();
  Reducer reducer(group, model_params(),
                  {.mode = ReduceMode::reproducible,
                   .shards = kShards,
                   .first_bucket_bytes = 64,
                   .bucket_bytes = 512});
  const ShardRange own = shards_of(kShards, group.rank(), group.size());
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const auto part = [&](int shard) { return samples_of(batch_of(step), kShards, shard); };
    reducer.begin({.samples = part(own.last - 1).last - part(own.first).first});
    for (std::size_t param = weights.size(); param-- > 0;)
      for (int shard = own.first; shard < own.last; ++shard) {
        gradient(weights[param], param, step, part(shard), floats(reducer.grad_view(param)));
        reducer.ready(param);
      }
    reducer.finish();
    for (std::size_t param = 0; param < weights.size(); ++param)
      descend(weights[param], floats(reducer.grad_view(param)));
  }
  group.shutdown();
  if (weights == trained_alone(kShards, kSteps)) return 0;
  std::fprintf(stderr, "rank %d: other weights than one process\n", group.rank());
  return 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
