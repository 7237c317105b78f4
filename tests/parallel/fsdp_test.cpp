// SPDX-License-Identifier: BSD-3-Clause
// Fsdp against one process that holds everything: the same bits for every number of ranks.
#include "c10d/parallel/fsdp.h"

#include <bit>
#include <cmath>
#include <mutex>
#include <set>

#include "c10d/parallel/mesh.h"
#include "tests/contract/ranks.h"
#include "tests/parallel/even_units.h"
#include "tests/temporary_directory.h"

namespace c10d::parallel { namespace {

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
std::vector<Unit> toy_units() { return wrap(toy_parameters()); }

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
  Trainer(const ProcessGroup& group, FsdpOptions options, const ProcessGroup& replicas = {})
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
    fsdp.sync_parameters();
  }

  std::vector<float> weights() {
    std::vector<float> all;
    for (std::size_t unit = 0; unit < fsdp.units().size(); ++unit) {
      const View arena = fsdp.unshard(unit);
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
    const View arena = fsdp.unshard(unit);
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

FsdpOptions reproducible(Sharding sharding, std::size_t prefetch_bytes = 0,
                         int gradient_buffers = 1) {
  return {.sharding = sharding,
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
  for (const int parts : {1, 2, 3}) {  // 2 is a grid of 2 x 2
    run(2 * parts, [&](ProcessGroup& world) {
      Mesh mesh(world, {{"replicate", 2}, {"shard", parts}});
      for (const Sharding& sharding : {kZero1, kZero3}) {
        Trainer trainer(mesh.sub("shard"), reproducible(sharding), mesh.sub("replicate"));
        expect_trained(trainer, norms);
      }
      world.barrier();
    });
  }
  EXPECT_EQ(norms.different(), 1u);
}

TEST_P(Sharded, ACheckpointResumesAtAnotherNumberOfRanksAndStage) {
  const TemporaryDirectory directory;
  run(3, [&](ProcessGroup& group) {
    Trainer trainer(group, reproducible(kZero3, 100'000));
    trainer.step(0);
    Snapshot snapshot = trainer.snapshot();
    snapshot.step = 1;
    save(group, directory.path(), snapshot);
  });
  run(2, [&](ProcessGroup& group) {
    for (const Sharding& sharding : {kZero1, kZero3}) {
      Trainer trainer(group, reproducible(sharding));
      Snapshot snapshot = trainer.snapshot();
      ASSERT_TRUE(load(group, directory.path(), snapshot));
      trainer.fsdp.sync_parameters();
      for (auto step = static_cast<std::int64_t>(snapshot.step); step < kSteps; ++step)
        trainer.step(step);
      EXPECT_EQ(trainer.weights(), trained_alone());
    }
  });
}

TEST_P(Sharded, TheFastModeAddsOneGradientPerRank) {
  for (const int size : {1, 2, 3}) {
    run(size, [&](ProcessGroup& group) {
      for (const Sharding& sharding : {kReplicated, kZero1, kZero2, kZero3}) {
        Fsdp fsdp(group, toy_units(), {.sharding = sharding});
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
    for (const Sharding& sharding : {kZero1, kZero3, kReplicated}) {
      Fsdp fsdp(group, toy_units(),
                {.sharding = sharding, .mode = ReduceMode::reproducible, .shards = 2});
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
    for (const Sharding& sharding : {kZero2, kZero3, kReplicated}) {
      Fsdp fsdp(group, even_units({3}), {.sharding = sharding, .compute = DType::bf16});
      std::vector<float> values(fsdp.elements(0));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1 + static_cast<float>(i) / 65536;
      fsdp.assign(0, values);
      for (float& value : fsdp.shard(0)) value += 1;
      fsdp.sync_parameters();
      const View arena = fsdp.unshard(0);
      ASSERT_EQ(arena.dtype, DType::bf16);
      for (std::size_t i = 0; i < values.size(); ++i) {
        // 2 + i / 2^16 below 2.2: bf16 has steps of 2^-6 there, and rounds half to even.
        const float steps = std::nearbyint(static_cast<float>(i) / 1024);
        const float expected = 2 + steps / 64;
        ASSERT_EQ(static_cast<const BFloat16*>(arena.data)[i].bits(),
                  std::bit_cast<std::uint32_t>(expected) >> 16)
            << i;
      }
      fsdp.reshard(0);
      for (std::size_t i = 0; i < fsdp.shard_elements(0); ++i)
        ASSERT_EQ(fsdp.shard(0)[i], values[fsdp.shard_offset(0) + i] + 1);
    }
  });
}

// One rounding when a value leaves its rank, one for each that is added, none for the mean.
TEST_P(Sharded, GradientsMayTravelAsBf16) {
  const auto value_of = [](int rank, std::size_t i) {
    return 3 * noise(static_cast<std::uint64_t>(rank) + 5, i);
  };
  // In bf16 as long as what is added up has at most eight bits.
  const auto whole_of = [](int rank, std::size_t i) {
    return static_cast<float>(i % 29) * static_cast<float>(rank + 1);
  };
  const auto expect_sums = [&](Fsdp& fsdp, int rank, int size) {
    const double allowed = std::pow(1 + 0x1p-8, size) - 1;
    std::size_t rounded = 0;
    for (const bool exact : {true, false}) {
      for (const std::size_t unit : {2, 1, 0}) {
        fsdp.unshard(unit);
        const auto gradient = fsdp.next_gradient(unit);
        for (std::size_t i = 0; i < gradient.size(); ++i)
          gradient[i] = exact ? whole_of(rank, i) : value_of(rank, i);
        fsdp.gradient_done(unit);
        fsdp.reduce(unit, 3);
        fsdp.reshard(unit);
      }
      fsdp.end_step();
      for (const std::size_t unit : {0, 1, 2})
        for (std::size_t i = 0; i < fsdp.shard_elements(unit); ++i) {
          const std::size_t at = fsdp.shard_offset(unit) + i;
          double sum = 0, size_of_all = 0;
          for (int other = 0; other < size; ++other) {
            const double value = exact ? whole_of(other, at) : value_of(other, at);
            sum += value;
            size_of_all += std::abs(value);
          }
          const float found = fsdp.gradient(unit)[i];
          if (exact)
            ASSERT_EQ(found, static_cast<float>(sum) / 3);
          else
            ASSERT_NEAR(found, sum / 3, (allowed + 0x1p-22) * size_of_all / 3) << unit << " " << at;
          rounded += std::abs(found - sum / 3) > 0x1p-20 * size_of_all;
        }
    }
    EXPECT_GT(rounded, fsdp.shard_elements(0) / 2) << "f32 would be nearer";
  };
  for (const int size : {1, 2, 3})
    run(size, [&](ProcessGroup& group) {
      for (const Sharding& sharding : {kReplicated, kZero1, kZero2, kZero3}) {
        Fsdp fsdp(group, toy_units(), {.sharding = sharding, .reduce = DType::bf16});
        expect_sums(fsdp, group.rank(), size);
      }
    });
  run(4, [&](ProcessGroup& world) {
    Mesh mesh(world, {{"replicate", 2}, {"shard", 2}});
    Fsdp fsdp(mesh.sub("shard"), toy_units(), {.reduce = DType::bf16}, mesh.sub("replicate"));
    expect_sums(fsdp, world.rank(), 4);
  });
}

// The order in which sums end is that of reduce(), behind what was gathered.
TEST_P(Sharded, AnObserverSeesEverySum) {
  run(2, [](ProcessGroup& group) {
    std::vector<std::size_t> seen;
    Fsdp fsdp(group, toy_units());
    fsdp.on_reduced([&](std::size_t unit) { seen.push_back(unit); });
    for (int step = 0; step < 2; ++step) {
      for (const std::size_t unit : {2, 0, 1}) pass_through(fsdp, unit);
      fsdp.end_step();
    }
    EXPECT_EQ(seen, (std::vector<std::size_t>{2, 0, 1, 2, 0, 1}));
  });
}

TEST(ShardedUnits, FollowTheLayers) {
  const auto units = toy_units();
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].name, "a");
  EXPECT_EQ(units[0].parameters.size(), 2u);
  EXPECT_EQ(units[2].name, "c");
  EXPECT_TRUE(wrap({}).empty());
  EXPECT_EQ(layer_of({.name = "a.b.weight"}), "a.b");
  EXPECT_EQ(layer_of({.name = "weight"}), "weight");
}

TEST(ShardedUnits, FollowAPolicy) {
  const auto names = [](const WrapPolicy& policy) {
    std::string text;
    for (const Unit& unit : wrap(toy_parameters(), policy))
      text += unit.name + std::to_string(unit.parameters.size()) + " ";
    return text;
  };
  EXPECT_EQ(names({}), "a2 b2 c1 ");
  // a has 9,393 elements, b 5,001.
  EXPECT_EQ(names({.min_bytes = 9393 * 4}), "a2 b3 ");
  EXPECT_EQ(names({.min_bytes = 9393 * 4 + 1}), "a4 c1 ") << "b joins a, c does not";
  EXPECT_EQ(names({.min_bytes = SIZE_MAX}), "a5 ");
  const auto half = [](const ParamSpec& spec) -> std::string {
    return spec.name < "b.t" ? "low" : "high";
  };
  EXPECT_EQ(names({.unit_of = half}), "low3 high2 ");
  EXPECT_EQ(names({.min_bytes = SIZE_MAX, .unit_of = half}), "low5 ");
}

C10D_ON_EACH_BACKEND(Sharded);

}}  // namespace c10d::parallel
