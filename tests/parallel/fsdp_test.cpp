// SPDX-License-Identifier: BSD-3-Clause
// Fsdp against one process that holds everything: the same bits for every number of ranks.
#include "c10d/parallel/fsdp.h"

#include <bit>
#include <cmath>
#include <mutex>
#include <set>

#include "tests/contract/ranks.h"
#include "tests/parallel/even_units.h"
#include "tests/parallel/temporary_directory.h"

namespace c10d::parallel {
namespace {

constexpr int kShards = 8;
constexpr std::int64_t kSteps = 2;

// Parameters of several blocks, of a part of one, and a scalar.
std::vector<ParamSpec> toy_parameters() {
  return {{"a.weight", {100, 93}, DType::f32},
          {"a.bias", {93}, DType::f32},
          {"b.scale", {}, DType::f32},
          {"b.weight", {50, 100}, DType::f32},
          {"c.weight", {4097}, DType::f32}};
}
std::vector<Unit> toy_units() { return wrap_by_layer(toy_parameters()); }

float noise(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15u + b * 0xBF58476D1CE4E5B9u + 1;
  x ^= x >> 29;
  x *= 0x94D049BB133111EBu;
  return static_cast<float>(x >> 40) * 0x1p-24f - 0.5f;
}

std::int64_t batch_of(std::int64_t step) { return step % 2 == 1 ? 5 : 13; }

// The toy's gradient: of element `index` of all parameters, summed over a shard's samples in order.
float leaf_gradient(float weight, std::uint64_t index, std::int64_t step, int shard) {
  const SampleRange samples = samples_of(batch_of(step), kShards, shard);
  float sum = 0;
  for (std::int64_t sample = samples.first; sample < samples.last; ++sample)
    sum += weight * noise(static_cast<std::uint64_t>(step * 100 + sample), index) -
           noise(index, static_cast<std::uint64_t>(sample));
  return sum;
}

float tree_gradient(float weight, std::uint64_t index, std::int64_t step, int first, int last) {
  if (last - first == 1) return leaf_gradient(weight, index, step, first);
  const int mid = (first + last) / 2;
  return tree_gradient(weight, index, step, first, mid) +
         tree_gradient(weight, index, step, mid, last);
}

void adam(float& weight, float& m, float& v, float gradient) {
  m = 0.9f * m + 0.1f * gradient;
  v = 0.99f * v + 0.01f * gradient * gradient;
  weight -= 0.01f * (m / (std::sqrt(v) + 1e-8f) + 0.1f * weight);
}

float first_weight(std::uint64_t index) { return noise(77, index); }

// One process, one list of elements, and the tree as its definition has it.
const std::vector<float>& trained_alone() {
  static const std::vector<float> result = [] {
    std::size_t count = 0;
    for (const ParamSpec& spec : toy_parameters()) count += spec.count();
    std::vector<float> weights(count), m(count), v(count);
    for (std::size_t i = 0; i < count; ++i) {
      weights[i] = first_weight(i);
      for (std::int64_t step = 0; step < kSteps; ++step)
        adam(weights[i], m[i], v[i],
             tree_gradient(weights[i], i, step, 0, kShards) / static_cast<float>(batch_of(step)));
    }
    return weights;
  }();
  return result;
}

// A trainer: the engine, the state of its optimizer, and where each unit begins among all elements.
class Trainer {
 public:
  Trainer(ProcessGroup& group, FsdpOptions options, ProcessGroup* replicas = nullptr)
      : fsdp(group, toy_units(), options, replicas) {
    std::size_t first = 0;
    for (std::size_t unit = 0; unit < fsdp.units().size(); ++unit) {
      firsts_.push_back(first);
      std::vector<float> arena(fsdp.elements(unit));
      for (std::size_t i = 0; i < arena.size(); ++i) arena[i] = first_weight(first + i);
      fsdp.assign(unit, arena);
      m_.emplace_back(fsdp.shard_elements(unit));
      v_.emplace_back(fsdp.shard_elements(unit));
      first += arena.size();
    }
  }

  void step(std::int64_t number) {
    const std::size_t units = fsdp.units().size();
    for (std::size_t unit = 0; unit < units; ++unit) {
      fsdp.unshard(unit);
      fsdp.reshard(unit);
    }
    for (std::size_t unit = units; unit-- > 0;) backward(unit, number);
    fsdp.end_step();
    norms.push_back(fsdp.global_norm());
    for (std::size_t unit = 0; unit < units; ++unit) {
      const auto shard = fsdp.shard(unit), gradient = fsdp.gradient(unit);
      for (std::size_t i = 0; i < shard.size(); ++i)
        adam(shard[i], m_[unit][i], v_[unit][i], gradient[i]);
    }
    fsdp.publish();
  }

  std::vector<float> weights() {
    std::vector<float> all;
    for (std::size_t unit = 0; unit < fsdp.units().size(); ++unit) {
      const Tensor arena = fsdp.unshard(unit);
      const auto* values = static_cast<const float*>(arena.data);
      all.insert(all.end(), values, values + arena.count);
      fsdp.reshard(unit);
    }
    fsdp.end_step();
    return all;
  }

  Snapshot snapshot() {
    Snapshot snapshot;
    for (std::size_t unit = 0; unit < fsdp.units().size(); ++unit) {
      for (auto& [prefix, state] : {std::pair<const char*, std::span<float>>{"", fsdp.shard(unit)},
                                    {"m.", m_[unit]},
                                    {"v.", v_[unit]}}) {
        auto parts = fsdp.parts(unit, prefix, state);
        snapshot.parts.insert(snapshot.parts.end(), parts.begin(), parts.end());
      }
    }
    return snapshot;
  }

  Fsdp fsdp;
  std::vector<double> norms;

 private:
  void backward(std::size_t unit, std::int64_t number) {
    const Tensor arena = fsdp.unshard(unit);
    const auto* weights = static_cast<const float*>(arena.data);
    for (int shard = fsdp.owned().first; shard < fsdp.owned().last; ++shard) {
      const auto gradient = fsdp.next_gradient(unit);
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = leaf_gradient(weights[i], firsts_[unit] + i, number, shard);
      fsdp.gradient_done(unit);
    }
    fsdp.reduce(unit, static_cast<double>(batch_of(number)));
    fsdp.reshard(unit);
  }

  std::vector<std::size_t> firsts_;
  std::vector<std::vector<float>> m_, v_;
};

FsdpOptions reproducible(Keep keep, std::size_t prefetch_bytes = 0, int gradient_buffers = 1) {
  return {.keep = keep,
          .mode = ReduceMode::reproducible,
          .shards = kShards,
          .prefetch_bytes = prefetch_bytes,
          .gradient_buffers = gradient_buffers};
}

// What every rank of every run ended with.
class Norms {
 public:
  void add(const std::vector<double>& norms) {
    const std::lock_guard lock(mutex_);
    seen_.insert(norms);
  }
  std::size_t different() const { return seen_.size(); }

 private:
  std::mutex mutex_;
  std::set<std::vector<double>> seen_;
};

void expect_trained(Trainer& trainer, Norms& norms) {
  for (std::int64_t step = 0; step < kSteps; ++step) trainer.step(step);
  EXPECT_EQ(trainer.weights(), trained_alone());
  norms.add(trainer.norms);
}

class Sharded : public contract::OnBackend {};

TEST_P(Sharded, EveryStageAndNumberOfRanksGivesTheBitsOfOneProcess) {
  Norms norms;
  for (const int size : {1, 2, 3, 4, 8}) {
    run(size, [&](ProcessGroup& group) {
      std::vector<FsdpOptions> stages = {reproducible(kZero1), reproducible(kZero2, 0, 2),
                                         reproducible(kZero3, 100'000, 2)};
      // Connections of gloo take their time.
      if (group.backend() == "native")
        stages.insert(stages.end(), {reproducible(kZero3), reproducible(kReplicated)});
      for (const FsdpOptions& options : stages) {
        Trainer trainer(group, options);
        expect_trained(trainer, norms);
      }
    });
  }
  EXPECT_EQ(norms.different(), 1u) << "the bits of the norm too";
}

TEST_P(Sharded, HybridsGiveTheBitsOfOneProcess) {
  Norms norms;
  for (const int parts : {1, 2, 3}) {
    run(2 * parts, [&](ProcessGroup& world) {
      ProcessGroup group = world.split(world.rank() / parts);
      ProcessGroup replicas = world.split(world.rank() % parts);
      for (const Keep& keep : {kZero1, kZero3}) {
        Trainer trainer(group, reproducible(keep), &replicas);
        expect_trained(trainer, norms);
      }
      world.barrier();
    });
  }
  EXPECT_EQ(norms.different(), 1u);
}

TEST_P(Sharded, ACheckpointGoesOnAtAnotherNumberOfRanksAndStage) {
  const TemporaryDirectory directory;
  run(3, [&](ProcessGroup& group) {
    Trainer trainer(group, reproducible(kZero3, 100'000));
    trainer.step(0);
    Snapshot snapshot = trainer.snapshot();
    snapshot.step = 1;
    save(group, directory.path(), snapshot);
  });
  run(2, [&](ProcessGroup& group) {
    for (const Keep& keep : {kZero1, kZero3}) {
      Trainer trainer(group, reproducible(keep));
      Snapshot snapshot = trainer.snapshot();
      ASSERT_TRUE(load(group, directory.path(), snapshot));
      trainer.fsdp.publish();
      for (auto step = static_cast<std::int64_t>(snapshot.step); step < kSteps; ++step)
        trainer.step(step);
      EXPECT_EQ(trainer.weights(), trained_alone());
    }
  });
}

TEST_P(Sharded, TheFastModeAddsOneGradientPerRank) {
  for (const int size : {1, 2, 3}) {
    run(size, [&](ProcessGroup& group) {
      for (const Keep& keep : {kReplicated, kZero1, kZero2, kZero3}) {
        Fsdp fsdp(group, toy_units(), {.keep = keep});
        for (int step = 0; step < 2; ++step) {
          for (std::size_t unit = 0; unit < 3; ++unit) {
            fsdp.unshard(unit);
            const auto gradient = fsdp.next_gradient(unit);
            for (std::size_t i = 0; i < gradient.size(); ++i)
              gradient[i] = static_cast<float>((group.rank() + 1) * 2) * static_cast<float>(i % 7);
            fsdp.gradient_done(unit);
            fsdp.reduce(unit, 2);
            fsdp.reshard(unit);
          }
          fsdp.end_step();
        }
        double squares = 0;
        const int ranks = size * (size + 1) / 2;
        const auto factor = static_cast<float>(ranks);
        for (std::size_t unit = 0; unit < 3; ++unit) {
          const auto own = fsdp.gradient(unit);
          for (std::size_t i = 0; i < own.size(); ++i)
            ASSERT_EQ(own[i], factor * static_cast<float>((fsdp.shard_offset(unit) + i) % 7));
          for (std::size_t i = 0; i < fsdp.elements(unit); ++i)
            squares += factor * factor * double((i % 7) * (i % 7));
        }
        EXPECT_EQ(fsdp.global_norm(), std::sqrt(squares)) << "integers: every order is exact";
      }
    });
  }
}

TEST_P(Sharded, ARankWithoutVirtualShardsTakesPart) {
  run(3, [&](ProcessGroup& group) {
    for (const Keep& keep : {kZero1, kZero3, kReplicated}) {
      Fsdp fsdp(group, toy_units(), {.keep = keep, .mode = ReduceMode::reproducible, .shards = 2});
      EXPECT_EQ(fsdp.owned(), shards_of(2, group.rank(), 3));
      for (int step = 0; step < 2; ++step) {
        for (std::size_t unit = 0; unit < 3; ++unit) {
          fsdp.unshard(unit);
          for (int shard = fsdp.owned().first; shard < fsdp.owned().last; ++shard) {
            const auto gradient = fsdp.next_gradient(unit);
            for (std::size_t i = 0; i < gradient.size(); ++i)
              gradient[i] = static_cast<float>(i + 10 * static_cast<std::size_t>(shard));
            fsdp.gradient_done(unit);
          }
          fsdp.reduce(unit);
          fsdp.reshard(unit);
        }
        fsdp.end_step();
      }
      for (std::size_t unit = 0; unit < 3; ++unit)
        for (std::size_t i = 0; i < fsdp.shard_elements(unit); ++i)
          ASSERT_EQ(fsdp.gradient(unit)[i],
                    static_cast<float>(2 * (fsdp.shard_offset(unit) + i) + 10));
    }
  });
}

TEST_P(Sharded, Bf16TravelsAndTheMastersStayWhole) {
  run(3, [](ProcessGroup& group) {
    for (const Keep& keep : {kZero2, kZero3, kReplicated}) {
      Fsdp fsdp(group, even_units({3}), {.keep = keep, .compute = DType::bf16});
      std::vector<float> values(fsdp.elements(0));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1 + static_cast<float>(i) / 65536;
      fsdp.assign(0, values);
      for (float& value : fsdp.shard(0)) value += 1;
      fsdp.publish();
      const Tensor arena = fsdp.unshard(0);
      ASSERT_EQ(arena.dtype, DType::bf16);
      for (std::size_t i = 0; i < values.size(); ++i) {
        // 2 + i / 2^16 below 2.2: bf16 has steps of 2^-6 there, and rounds half to even.
        const float steps = std::nearbyint(static_cast<float>(i) / 1024);
        const float expected = 2 + steps / 64;
        ASSERT_EQ(static_cast<const BFloat16*>(arena.data)[i].bits,
                  std::bit_cast<std::uint32_t>(expected) >> 16)
            << i;
      }
      fsdp.reshard(0);
      for (std::size_t i = 0; i < fsdp.shard_elements(0); ++i)
        ASSERT_EQ(fsdp.shard(0)[i], values[fsdp.shard_offset(0) + i] + 1);
    }
  });
}

// Rank 1 makes a mistake; the other finds its text in the next call that needs rank 1.
void expect_misuse(const contract::OnBackend& on, Keep keep, const std::string& text,
                   const std::function<void(Fsdp&)>& mistake) {
  on.run(2, [&](ProcessGroup& group) {
    Fsdp fsdp(group, even_units({2, 2}), {.keep = keep});
    const auto backward = [&](std::size_t unit) {
      fsdp.unshard(unit);
      fsdp.next_gradient(unit);
      fsdp.gradient_done(unit);
      fsdp.reduce(unit);
      fsdp.reshard(unit);
    };
    try {
      for (const std::size_t unit : {0, 1}) backward(unit);
      fsdp.end_step();
      if (group.rank() == 1) mistake(fsdp);
      for (const std::size_t unit : {0, 1}) backward(unit);
      fsdp.end_step();
      ADD_FAILURE() << "accepted: " << text;
    } catch (const std::exception& error) {
      EXPECT_EQ(dynamic_cast<const InvalidArgument*>(&error) != nullptr, group.rank() == 1);
      EXPECT_NE(std::string(error.what()).find("Fsdp on rank 1: " + text), std::string::npos)
          << error.what();
    }
  });
}

TEST_P(Sharded, AMistakeIsNamedOnEveryRank) {
  for (const Keep& keep : {kZero1, kZero3}) {
    const auto expect = [&](const std::string& text, const std::function<void(Fsdp&)>& mistake) {
      expect_misuse(*this, keep, text, mistake);
    };
    expect("reshard of layer1, which is not gathered", [](Fsdp& f) { f.reshard(1); });
    expect("unshard of layer1 as call 1 of the step, where the first step had unshard of layer0",
           [](Fsdp& f) { f.unshard(1); });
    expect("end_step, but the gradient of layer0 is not reduced", [](Fsdp& f) {
      f.next_gradient(0);
      f.gradient_done(0);
      f.end_step();
    });
    expect("reduce of layer0 after 0 of 1 virtual shards", [](Fsdp& f) { f.reduce(0); });
    expect("unshard of unit 2, but there are 2", [](Fsdp& f) { f.unshard(2); });
  }
}

TEST_P(Sharded, AFirstStepInAnotherOrderIsAMismatchOnEveryRank) {
  run(2, [](ProcessGroup& group) {
    Fsdp fsdp(group, even_units({2, 2}));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t unit = group.rank() == 0 ? i : 1 - i;
      fsdp.unshard(unit);
      fsdp.next_gradient(unit);
      fsdp.gradient_done(unit);
      fsdp.reduce(unit);
      fsdp.reshard(unit);
    }
    EXPECT_EQ(contract::code_of([&] { fsdp.end_step(); }), Code::mismatch);
  });
}

TEST_P(Sharded, RanksAgreeOnUnitsAndOptionsWhenItIsMade) {
  struct Case {
    std::function<void(std::vector<Unit>&, FsdpOptions&)> change;
    std::string text;
  };
  const std::vector<Case> cases = {
      {[](auto& u, auto&) {
         u[1].parameters[0].shape = {4, 4096};
       },
       "layer1.w f32 [4, 4096]"},
      {[](auto& u, auto&) { u[0].parameters[0].name = "x"; }, "x f32 [2, 4096]"},
      {[](auto& u, auto&) { u.pop_back(); }, "layer1"},
      {[](auto&, auto& o) { o.keep = kZero2; }, "keep"},
  };
  for (const Case& one : cases) {
    run(3, [&](ProcessGroup& group) {
      auto units = even_units({2, 2});
      FsdpOptions options;
      if (group.rank() == 2) one.change(units, options);
      const Failure failure = contract::failure_of([&] { Fsdp(group, units, options); });
      EXPECT_EQ(failure.code, Code::mismatch);
      EXPECT_NE(failure.message.find(one.text), std::string::npos) << failure.message;
    });
  }
  run(2, [](ProcessGroup& group) {
    const Keep wrong{Kept::sharded, Kept::replicated, Kept::sharded};
    EXPECT_THROW(Fsdp(group, even_units({1}), {.keep = wrong}), InvalidArgument);
    EXPECT_THROW(Fsdp(group, {{"u", {{"w", {3}, DType::f64}}}}), InvalidArgument);
    EXPECT_THROW(Fsdp(group, {{"u", {{"w", {0}, DType::f32}}}}), InvalidArgument);
    EXPECT_THROW(Fsdp(group, {}), InvalidArgument);
    contract::expect_usable(group);
  });
}

TEST_P(Sharded, GroupsThatMakeNoGridAreRefused) {
  run(4, [](ProcessGroup& world) {
    ProcessGroup group = world.split(world.rank() / 2);
    ProcessGroup replicas = world.split(world.rank() == 0 || world.rank() == 3 ? 0 : 1);
    EXPECT_THROW(Fsdp(group, even_units({1}), {}, &replicas), DistError);
    world.barrier();
  });
}

TEST(ShardedUnits, FollowTheLayers) {
  const auto units = toy_units();
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].name, "a");
  EXPECT_EQ(units[0].parameters.size(), 2u);
  EXPECT_EQ(units[2].name, "c");
  const auto joined = wrap_by_layer(toy_parameters(), 9394);
  ASSERT_EQ(joined.size(), 2u) << "a has 9,393 elements: b joins it, c does not";
  EXPECT_EQ(joined[0].parameters.size(), 4u);
}

C10D_ON_EACH_BACKEND(Sharded);

}  // namespace
}  // namespace c10d::parallel
