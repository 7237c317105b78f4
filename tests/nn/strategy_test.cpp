// SPDX-License-Identifier: BSD-3-Clause
// What the trainer counts on, whatever the strategy.
#include "examples/training/trainer/strategy.h"

#include <gtest/gtest.h>

#include <numeric>

namespace nn { namespace {

using Make = std::unique_ptr<Strategy>(const Task&, c10d::ProcessGroup&, Trace&);

std::vector<std::byte> bytes_of(Strategy& strategy) {
  std::vector<std::byte> bytes;
  for (const auto& part : strategy.parts())
    bytes.insert(bytes.end(), part.data.begin(), part.data.end());
  return bytes;
}

// So that a checkpoint may be copied until then.
TEST(Strategies, SayBeforeTheyChangeTheirParts) {
  for (Make* const make : {local, replicated, replicas, sharded, staged}) {
    Options options;
    options.model = "mlp";
    options.global_batch_size = 8;
    options.shards = 4;
    for (options.zero = 1; options.zero <= 3; ++options.zero) {
      const Task task(options, 1);
      auto group = alone();
      Trace trace(false);
      const auto strategy = make(task, group, trace);
      std::vector<std::int64_t> batch(8);
      std::iota(batch.begin(), batch.end(), 0);
      for (std::uint64_t step = 1; step <= 3; ++step) {
        const auto before = bytes_of(*strategy);
        int calls = 0;
        strategy->before_update([&] {
          ++calls;
          EXPECT_EQ(bytes_of(*strategy), before);
        });
        strategy->step(batch, step, 0.01F);
        EXPECT_EQ(calls, 1);
        EXPECT_NE(bytes_of(*strategy), before);
      }
      if (make != sharded) break;
    }
  }
}

}}  // namespace nn
