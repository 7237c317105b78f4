// SPDX-License-Identifier: BSD-3-Clause
// Ranks as processes, for the backends that want it so: processes <backend> under a launcher. Ends
// with 0 when the weights have the bits of one process; in mode fast, when they are within 1e-6.
#include <cstdio>
#include <exception>

#include "c10d/init.h"
#include "c10d/parallel/ddp.h"
#include "tests/parallel/model.h"

using namespace c10d::parallel;

namespace {

Weights trained(c10d::ProcessGroup& group, ReduceMode mode, int shards, std::int64_t steps) {
  Weights weights = model_weights();
  Reducer reducer(group, model_params(),
                  {.mode = mode, .shards = shards, .first_bucket_bytes = 64, .bucket_bytes = 512});
  const ShardRange own = shards_of(shards, group.rank(), group.size());
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto part = [&](int shard) { return samples_of(batch_of(step), shards, shard); };
    reducer.begin_step({.samples = part(own.last - 1).last - part(own.first).first});
    for (std::size_t param = weights.size(); param-- > 0;)
      for (int shard = own.first; shard < own.last; ++shard) {
        gradient(weights[param], param, step, part(shard), floats(reducer.grad_view(param)));
        reducer.mark_ready(param);
      }
    reducer.finish();
    for (std::size_t param = 0; param < weights.size(); ++param)
      descend(weights[param], floats(reducer.grad_view(param)));
  }
  return weights;
}

}  // namespace

int main(int argc, char** argv) try {
  constexpr int kShards = 8;
  constexpr std::int64_t kSteps = 30, kFastSteps = 8;
  auto group = c10d::init_process_group({.backend = argc > 1 ? argv[1] : "native"});
  const Weights weights = trained(group, ReduceMode::reproducible, kShards, kSteps);
  const Weights fast = trained(group, ReduceMode::fast, group.size(), kFastSteps);
  const int rank = group.rank();
  const double off = distance(fast, trained_alone(group.size(), kFastSteps));
  group.shutdown();
  const bool same = weights == trained_alone(kShards, kSteps);
  if (!same) std::fprintf(stderr, "rank %d: other weights than one process\n", rank);
  if (off >= 1e-6) std::fprintf(stderr, "rank %d: mode fast is off by %g\n", rank, off);
  return same && off < 1e-6 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
