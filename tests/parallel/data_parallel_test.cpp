// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/data_parallel.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <thread>

#include "c10d/error.h"
#include "tests/parallel/model.h"

namespace c10d::parallel { namespace {

constexpr int kShards = 8;
constexpr std::int64_t kSteps = 30;

Weights trained(int replicas) {
  Weights weights = model_weights();
  DataParallel parallel(replicas, model_params(), kShards);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const StepResult result = parallel.step([&](Replica& replica) {
      std::int64_t samples = 0;
      for (int shard = replica.shards().first; shard < replica.shards().last; ++shard) {
        const SampleRange part = samples_of(batch_of(step), kShards, shard);
        samples += part.count();
        for (std::size_t param = 0; param < weights.size(); ++param) {
          gradient(weights[param], param, step, part, floats(replica.grad_view(param)));
          replica.ready(param);
        }
      }
      return samples;
    });
    EXPECT_EQ(result.samples, batch_of(step));
    for (std::size_t param = 0; param < weights.size(); ++param) {
      const auto bytes = parallel.gradient(param);
      descend(weights[param], {reinterpret_cast<const float*>(bytes.data()), bytes.size() / 4});
    }
  }
  return weights;
}

// E1 with threads; nine replicas leave one without a shard.
TEST(DataParallel, SameWeightsForEveryNumberOfReplicas) {
  const Weights expected = trained_alone(kShards, kSteps);
  for (const int replicas : {1, 2, 3, 4, 8, 9}) EXPECT_EQ(trained(replicas), expected) << replicas;
}

TEST(DataParallel, ReplicasWithoutSamplesCountAsZeros) {
  DataParallel parallel(3, {{.name = "a", .shape = {2}}});
  for (int busy = 2; busy >= 0; --busy) {
    const StepResult result = parallel.step([&](Replica& replica) -> std::int64_t {
      if (replica.index() != busy) return 0;
      for (float& value : floats(replica.grad_view(0))) value = 12;
      replica.ready(0);
      return 4;
    });
    EXPECT_EQ(result.samples, 4);
    EXPECT_EQ(reinterpret_cast<const float*>(parallel.gradient(0).data())[1], 3);
  }
  EXPECT_EQ(parallel.step([](Replica&) { return 0; }).samples, 0);
  EXPECT_EQ(reinterpret_cast<const float*>(parallel.gradient(0).data())[0], 0);
}

TEST(DataParallel, EachReplicaKeepsItsThread) {
  DataParallel parallel(3, {});
  std::vector<std::thread::id> threads(3);
  for (int step = 0; step < 4; ++step)
    parallel.step([&](Replica& replica) {
      std::thread::id& known = threads[static_cast<std::size_t>(replica.index())];
      EXPECT_TRUE(step == 0 || known == std::this_thread::get_id());
      known = std::this_thread::get_id();
      return 1;
    });
  EXPECT_EQ(std::set(threads.begin(), threads.end()).size(), 3u);
}

std::string error_of(DataParallel& parallel, const std::function<std::int64_t(Replica&)>& work) {
  try {
    parallel.step(work);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(DataParallel, MistakesAreNamedAndTheNextStepStartsAfresh) {
  DataParallel parallel(3, {{.name = "a", .shape = {2}}, {.name = "b", .shape = {}}});
  const auto right = [](Replica& replica) {
    for (std::size_t param = 0; param < 2; ++param) {
      for (float& value : floats(replica.grad_view(param))) value = 2;
      replica.ready(param);
    }
    return 1;
  };
  const auto only = [&](int index, const std::function<std::int64_t(Replica&)>& wrong) {
    const std::string text = error_of(parallel, [&](Replica& replica) {
      return replica.index() == index ? wrong(replica) : right(replica);
    });
    EXPECT_EQ(parallel.step(right).samples, 3);
    EXPECT_EQ(reinterpret_cast<const float*>(parallel.gradient(1).data())[0], 2);
    return text;
  };
  EXPECT_EQ(only(1, [](Replica&) -> std::int64_t { throw std::runtime_error("full"); }), "full");
  EXPECT_EQ(only(2,
                 [](Replica& replica) {
                   replica.ready(0);
                   return 1;
                 }),
            "DataParallel: replica 2 marked parameter b for 0 of 1 shards");
  EXPECT_NE(only(0,
                 [](Replica& replica) {
                   replica.ready(0);
                   replica.ready(0);
                   return 1;
                 })
                .find("replica 0 has no view of parameter 0"),
            std::string::npos);
  EXPECT_NE(only(0,
                 [](Replica& replica) {
                   replica.grad_view(7);
                   return 1;
                 })
                .find("replica 0 has no view of parameter 7"),
            std::string::npos);
  EXPECT_NE(only(0, [](Replica&) { return -1; }).find("-1 samples"), std::string::npos);
  EXPECT_EQ(error_of(parallel,
                     [](Replica& replica) -> std::int64_t {
                       throw std::runtime_error(std::to_string(replica.index()));
                     }),
            "0");
  EXPECT_THROW(parallel.gradient(2), InvalidArgument);
}

TEST(DataParallel, RefusesWhatMakesNoSense) {
  EXPECT_THROW(DataParallel(0, {}), InvalidArgument);
  EXPECT_THROW(DataParallel(2, {}, -1), InvalidArgument);
  EXPECT_THROW(DataParallel(2, {{.name = "a", .shape = {-1}}}), InvalidArgument);
  EXPECT_THROW(DataParallel(2, {{.name = "a", .shape = {1}, .dtype = DType::i32}}),
               InvalidArgument);
}

}}  // namespace c10d::parallel
