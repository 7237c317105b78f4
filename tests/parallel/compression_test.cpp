// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/compression.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/contract/ranks.h"
#include "tests/parallel/model.h"

namespace c10d::parallel { namespace {

// Element i of a matrix with 20 columns, of rank 1.
float of_rank_1(std::size_t i) {
  const std::size_t row = i / 20, column = i % 20;
  return static_cast<float>((row + 1) * column);
}

using CompressionOn = contract::OnBackend;

// One parameter on every rank; what the mean is when each rank gives `value` for one sample.
float mean_of(ProcessGroup& group, const BucketHook& hook, float value, std::int64_t samples = 1) {
  Reducer reducer(group, {{.name = "a", .shape = {3}}});
  reducer.set_hook(hook);
  reducer.begin_step({.samples = samples});
  for (float& element : floats(reducer.grad_view(0))) element = value;
  reducer.mark_ready(0);
  reducer.finish();
  const auto mean = floats(reducer.grad_view(0));
  EXPECT_EQ(mean[0], mean[2]);
  return mean[0];
}

TEST_P(CompressionOn, HalvesRoundToNearest) {
  run(2, [](ProcessGroup& group) {
    EXPECT_EQ(mean_of(group, reduce_as_bf16, 3.0f), 3.0f);
    EXPECT_EQ(mean_of(group, reduce_as_f16, 3.0f), 3.0f);
    EXPECT_EQ(mean_of(group, reduce_as_bf16, 1.0f + 0x1p-9f), 1.0f);
    EXPECT_EQ(mean_of(group, reduce_as_f16, 1.0f + 0x1p-9f), 1.0f + 0x1p-9f);
    EXPECT_EQ(mean_of(group, reduce_as_f16, 1.0f + 0x1p-12f), 1.0f);
    // The sum is out of the range of f16, the mean is in it.
    EXPECT_EQ(mean_of(group, reduce_as_f16, 1048576.0f, 64), 16384.0f);
  });
}

TEST_P(CompressionOn, OtherDtypesGoAsTheyAre) {
  run(2, [](ProcessGroup& group) {
    PowerSgd power;
    const std::vector<BucketHook> hooks{reduce_as_bf16, reduce_as_f16, std::ref(power)};
    for (const BucketHook& hook : hooks) {
      Reducer reducer(group, {{.name = "a", .shape = {64, 64}, .dtype = DType::f64}});
      reducer.set_hook(hook);
      reducer.begin_step({.samples = 1});
      auto* const values = reinterpret_cast<double*>(reducer.grad_view(0).data());
      std::fill_n(values, 64 * 64, 1 + 0x1p-40);
      reducer.mark_ready(0);
      reducer.finish();
      EXPECT_EQ(reinterpret_cast<const double*>(reducer.grad_view(0).data())[9], 1 + 0x1p-40);
    }
  });
}

// A matrix of rank 1 is sent as it is, up to rounding; a vector exactly.
TEST_P(CompressionOn, PowerSgdKeepsWhatFits) {
  run(3, [](ProcessGroup& group) {
    PowerSgd power({.rank = 2});
    Reducer reducer(group,
                    {{.name = "matrix", .shape = {12, 4, 5}}, {.name = "vector", .shape = {7}}});
    reducer.set_hook(std::ref(power));
    for (int step = 0; step < 3; ++step) {
      reducer.begin_step({.samples = 2});
      const auto matrix = floats(reducer.grad_view(0));
      const auto element = [](std::size_t i) {
        const std::size_t row = i / 20;
        return static_cast<float>((row + 1) * (i % 20));
      };
      for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = element(i);
      for (float& value : floats(reducer.grad_view(1))) value = static_cast<float>(group.rank());
      reducer.mark_ready(0);
      reducer.mark_ready(1);
      reducer.finish();
      const auto mean = floats(reducer.grad_view(0));
      for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i], element(i) / 2, 1e-3);
      EXPECT_EQ(floats(reducer.grad_view(1))[6], 0.5f);
      EXPECT_EQ(power.error(0).size(), 240u);
      EXPECT_TRUE(power.error(1).empty());
    }
  });
}

// E10: nothing is lost: all that was sent and what all ranks still owe is the sum of the means.
TEST_P(CompressionOn, PowerSgdErrorFeedbackAddsUp) {
  run(3, [](ProcessGroup& group) {
    constexpr std::size_t kCount = 16 * 24;
    PowerSgd power({.rank = 1});
    Reducer reducer(group, {{.name = "matrix", .shape = {16, 24}}});
    reducer.set_hook(std::ref(power));
    std::vector<double> sent(kCount), exact(kCount);
    for (std::uint64_t step = 0; step < 20; ++step) {
      reducer.begin_step({.samples = group.rank() + 1});
      const auto own = floats(reducer.grad_view(0));
      // A step of zeros: the factors must come to life again after it.
      PhiloxStream random(3, step, static_cast<std::uint64_t>(group.rank()), 0);
      for (std::size_t i = 0; i < kCount; ++i) {
        own[i] = step == 4 ? 0 : random.uniform() - 0.5f;
        exact[i] += own[i] / 6.0;
      }
      reducer.mark_ready(0);
      reducer.finish();
      const auto mean = floats(reducer.grad_view(0));
      for (std::size_t i = 0; i < kCount; ++i) sent[i] += mean[i];
      check_same(group, "the means", std::as_bytes(mean));
    }
    std::vector<double> owed(power.error(0).begin(), power.error(0).end());
    group.all_reduce(owed);
    group.all_reduce(exact);
    double largest = 0, debt = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      largest = std::max(largest, std::abs(sent[i] + owed[i] - exact[i]));
      debt = std::max(debt, std::abs(owed[i]));
    }
    EXPECT_LT(largest, 1e-5);
    EXPECT_GT(debt, 0.01);  // something was compressed
  });
}

// The factors are as small and as large as the fourth power of what they are made of.
TEST_P(CompressionOn, PowerSgdKeepsWhatIsTinyOrHuge) {
  run(2, [](ProcessGroup& group) {
    for (const float scale : {1e-14f, 1e14f}) {
      PowerSgd power({.rank = 1});
      Reducer reducer(group, {{.name = "matrix", .shape = {12, 20}}});
      reducer.set_hook(std::ref(power));
      const auto element = [&](std::size_t i) { return scale * of_rank_1(i); };
      for (int step = 0; step < 4; ++step) {
        reducer.begin_step({.samples = 1});
        const auto own = floats(reducer.grad_view(0));
        for (std::size_t i = 0; i < own.size(); ++i) own[i] = element(i);
        reducer.mark_ready(0);
        reducer.finish();
        const auto mean = floats(reducer.grad_view(0));
        for (std::size_t i = 0; i < mean.size(); ++i)
          EXPECT_NEAR(mean[i], element(i), 1e-3f * scale) << "step " << step;
      }
    }
  });
}

// Every rank sees what one of them had, in that step; the next ones know nothing of it.
TEST_P(CompressionOn, PowerSgdForgetsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto is_finite = [](float value) { return std::isfinite(value); };
  run(2, [&](ProcessGroup& group) {
    for (const float bad : {std::nanf(""), kInfinity}) {
      PowerSgd power({.rank = 2});
      Reducer reducer(group, {{.name = "matrix", .shape = {12, 20}}});
      reducer.set_hook(std::ref(power));
      for (int step = 0; step < 4; ++step) {
        reducer.begin_step({.samples = 1});
        const auto own = floats(reducer.grad_view(0));
        for (std::size_t i = 0; i < own.size(); ++i)
          own[i] = of_rank_1(i);  // of rank 1: nothing is lost
        if (step == 1 && group.rank() == 1) own[50] = bad;
        reducer.mark_ready(0);
        reducer.finish();
        const auto mean = floats(reducer.grad_view(0));
        EXPECT_EQ(std::ranges::all_of(mean, is_finite), step != 1) << "step " << step;
        if (step == 1)
          EXPECT_EQ(std::ranges::count(power.error(0), 0.0f), 240);
        else
          for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i], of_rank_1(i), 1e-3);
      }
    }
  });
}

// E10: a regression of 12 x 10 weights on noisy targets ends at the same loss within 1 %.
double final_loss(ProcessGroup& group, const BucketHook& hook) {
  constexpr std::size_t kIn = 10, kOut = 12;
  constexpr int kSamples = 64;  // half of them on each rank
  std::vector<float> weights(kIn * kOut);
  Reducer reducer(group, {{.name = "weights", .shape = {kOut, kIn}}});
  if (hook) reducer.set_hook(hook);
  const auto for_each_error = [&](int first, int last, const auto& use) {
    for (int sample = first; sample < last; ++sample) {
      PhiloxStream random(5, 0, static_cast<std::uint64_t>(sample), 0);
      std::vector<float> input(kIn);
      for (float& value : input) value = random.uniform() * 2 - 1;
      for (std::size_t o = 0; o < kOut; ++o) {
        float error = random.uniform() - 0.5f;  // noise that no weights explain
        for (std::size_t i = 0; i < kIn; ++i)
          error += (weights[o * kIn + i] - static_cast<float>((o + 2 * i) % 5)) * input[i];
        use(o, input, error);
      }
    }
  };
  for (int step = 0; step < 80; ++step) {
    reducer.begin_step({.samples = kSamples / 2});
    const auto own = floats(reducer.grad_view(0));
    std::fill(own.begin(), own.end(), 0.0f);
    for_each_error(group.rank() * kSamples / 2, (group.rank() + 1) * kSamples / 2,
                   [&](std::size_t o, const std::vector<float>& input, float error) {
                     for (std::size_t i = 0; i < kIn; ++i) own[o * kIn + i] += error * input[i];
                   });
    reducer.mark_ready(0);
    reducer.finish();
    const auto mean = floats(reducer.grad_view(0));
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.5f * mean[i];
  }
  double loss = 0;
  for_each_error(0, kSamples, [&](std::size_t, const std::vector<float>&, float error) {
    loss += static_cast<double>(error) * error;
  });
  return loss;
}

TEST_P(CompressionOn, TrainingEndsAtTheSameLoss) {
  run(2, [](ProcessGroup& group) {
    const double exact = final_loss(group, {});
    PowerSgd power({.rank = 2});
    for (const BucketHook& hook : std::vector<BucketHook>{reduce_as_bf16, std::ref(power)})
      EXPECT_NEAR(final_loss(group, hook), exact, 0.01 * exact);
    EXPECT_GT(exact, 1);
  });
}

TEST(Compression, PowerSgdRefusesARankThatMakesNoSense) {
  EXPECT_THROW(PowerSgd({.rank = 0}), InvalidArgument);
  EXPECT_THROW(PowerSgd({.rank = 65}), InvalidArgument);
}

C10D_ON_EACH_BACKEND(CompressionOn);

}}  // namespace c10d::parallel
