// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "tests/parallel/toy_stage.h"

// Toy stages as a model: trained in one process, and what a rank of a pipeline needs of it.
namespace c10d::parallel {

struct Model {
  int stages = 1;
  int micro_batches = 1;
  std::size_t columns = 5;
  std::vector<Skip> skips{};
  std::vector<TiedWeight> tied{};
  int steps = 2;

  std::vector<Skip> edges() const {
    std::vector<Skip> all = skips;
    for (int stage = 0; stage + 1 < stages; ++stage) all.push_back({stage, stage + 1});
    return all;
  }
};

using Weights = std::map<int, std::vector<float>>;  // by stage

// The oracle: one process, one micro-batch after the other, one stage after the other.
inline Weights train_alone(const Model& model) {
  std::vector<ToyStage> stages;
  for (int s = 0; s < model.stages; ++s) stages.emplace_back(s, model.edges(), model.columns);
  for (int step = 0; step < model.steps; ++step) {
    for (int i = 0; i < model.micro_batches; ++i) {
      std::map<std::pair<int, int>, Activation> values, gradients;
      const auto sources = [&](int s) {
        std::vector<int> from;
        if (s > 0) from.push_back(s - 1);
        for (int other = 0; other < s - 1; ++other)
          if (std::ranges::count(model.skips, Skip{other, s}) != 0) from.push_back(other);
        return from;
      };
      const auto targets = [&](int s) {
        std::vector<int> to;
        for (int other = s + 1; other < model.stages; ++other)
          if (other == s + 1 || std::ranges::count(model.skips, Skip{s, other}) != 0)
            to.push_back(other);
        return to;
      };
      for (int s = 0; s < model.stages; ++s) {
        std::vector<Activation> inputs;
        for (const int from : sources(s)) inputs.push_back(values[{from, s}]);
        const auto outputs = stages[static_cast<std::size_t>(s)].forward(i, inputs);
        for (std::size_t k = 0; k < outputs.size(); ++k) values[{s, targets(s)[k]}] = outputs[k];
      }
      for (int s = model.stages; s-- > 0;) {
        std::vector<Activation> given;
        for (const int to : targets(s)) given.push_back(gradients[{s, to}]);
        const auto results = stages[static_cast<std::size_t>(s)].backward_input(i, given);
        for (std::size_t k = 0; k < results.size(); ++k) gradients[{sources(s)[k], s}] = results[k];
        stages[static_cast<std::size_t>(s)].backward_weight(i);
      }
    }
    for (const TiedWeight& tied : model.tied) {
      std::vector<float> sum(model.columns);
      for (std::size_t j = 0; j < model.columns; ++j) {
        sum[j] = stages[static_cast<std::size_t>(tied.stages[0])].gradient()[j];
        for (std::size_t k = 1; k < tied.stages.size(); ++k)
          sum[j] += stages[static_cast<std::size_t>(tied.stages[k])].gradient()[j];
      }
      for (const int s : tied.stages) stages[static_cast<std::size_t>(s)].gradient() = sum;
    }
    for (ToyStage& stage : stages) stage.learn();
  }
  Weights weights;
  for (int s = 0; s < model.stages; ++s) weights[s] = stages[static_cast<std::size_t>(s)].weight();
  return weights;
}

// The stages of one rank, and what Pipeline wants to know of them.
struct OwnStages {
  OwnStages(const Schedule& schedule, const Model& model, int rank) {
    const ScheduleFacts facts = validate(schedule, model.skips);
    for (int s = 0; s < model.stages; ++s)
      if (facts.rank_of_stage[static_cast<std::size_t>(s)] == rank)
        toys.try_emplace(s, s, model.edges(), model.columns);
  }
  std::map<int, Stage*> pointers() {
    std::map<int, Stage*> all;
    for (auto& entry : toys) all[entry.first] = &entry.second;
    return all;
  }
  std::map<int, ToyStage> toys;
};

inline PipelineOptions options_of(const Schedule& schedule, const Model& model) {
  PipelineOptions options;
  options.schedule = schedule;
  options.skips = model.skips;
  options.tied = model.tied;
  return options;
}

}  // namespace c10d::parallel
