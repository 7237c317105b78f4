// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/nn/net.h"

#include <algorithm>
#include <stdexcept>

#include "examples/training/nn/errors.h"

namespace nn {

Net::Net(const Model& model, int shards)
    : values(model.parameters.size()),
      model_(model),
      consumers_(model.nodes.size()),
      states_(static_cast<std::size_t>(shards)) {
  for (std::size_t node = 0; node < model.nodes.size(); ++node)
    for (const int read : {model.nodes[node].input, model.nodes[node].second})
      if (read >= 0) consumers_[static_cast<std::size_t>(read)].push_back(static_cast<int>(node));
}

const Net::Plans& Net::plans_for(const Layout& input, bool training) {
  const auto [found, is_new] = plans_.try_emplace({input.samples(), training});
  Plans& plans = found->second;
  if (!is_new) return plans;
  for (const Node& node : model_.nodes) {
    const Layout& from = node.input < 0 ? input : plans[node.input]->output;
    plans.push_back(node.layer.plan(from, training));
    if (node.second >= 0 && !same_layout(from, plans[node.second]->output))
      throw_invalid("the inputs of {} differ in shape or layout", node.name);
  }
  return plans;
}

void Net::place(int shard, std::int64_t samples, bool training) {
  State& state = states_[shard];
  const std::size_t nodes = model_.nodes.size();
  Shape shape = model_.sample;
  shape.insert(shape.begin(), samples);
  state.input = Layout::plain(shape);
  const Plans* plans = samples == 0 ? nullptr : &plans_for(state.input, training);
  if (plans != state.plans || state.slots.empty()) {
    state.slots.clear();
    state.slots.resize(nodes);
  }
  state.plans = plans;
  state.samples = samples;
  state.given.assign(nodes + 1, nullptr);
  state.diffs.assign(nodes + 1, nullptr);
}

const Layout& Net::layout(int node, int shard) const {
  const State& state = states_[shard];
  return node < 0 ? state.input : (*state.plans)[node]->output;
}

void Net::set_output(int node, int shard, const float* data) {
  states_[shard].given[node + 1] = data;
}

const float* Net::output(int node, int shard) const {
  const State& state = states_[shard];
  const float* given = state.given[node + 1];
  return given != nullptr ? given : state.slots[node].output.data();
}

void Net::set_diff(int node, int shard, float* data) { states_[shard].diffs[node + 1] = data; }

// The consumers' gradients add up in the first consumer that has a buffer of its own, in their
// order.
float* Net::diff_of(int node, int shard) {
  State& state = states_[shard];
  float*& diff = state.diffs[node + 1];
  if (diff != nullptr) return diff;
  const auto passes = [&](int consumer) { return (*state.plans)[consumer]->passes_gradient; };
  std::vector<int> consumers = consumers_[node];
  std::stable_partition(consumers.begin(), consumers.end(), [&](int c) { return !passes(c); });
  for (const int consumer : consumers) {
    float* part =
        passes(consumer) ? state.diffs[consumer + 1] : state.slots[consumer].diff_input.data();
    if (diff == nullptr) {
      diff = part;
    } else {
      if (passes(consumers.front()))
        throw std::logic_error("two layers without gradient buffers read one output");
      const std::size_t floats = (*state.plans)[node]->output.floats;
      for (std::size_t i = 0; i < floats; ++i) diff[i] += part[i];
    }
  }
  return diff;
}

std::span<float* const> Net::values_of(int node) const {
  const Node& at = model_.nodes[node];
  return std::span(values).subspan(at.first_parameter, at.layer.parameters.size());
}

Slot& Net::slot(int node, int shard) {
  State& state = states_[shard];
  Slot& at = state.slots[node];
  const Plan& plan = *(*state.plans)[node];
  if (at.output.size() == 0) {
    at.output = Buffer(plan.output.floats);
    at.kept = Buffer(plan.kept);
  }
  at.input = output(model_.nodes[node].input, shard);
  if (model_.nodes[node].second >= 0) at.second = output(model_.nodes[node].second, shard);
  return at;
}

// Calls once per run of shards that have the same shape.
void Net::run(int node, int shard, int shards,
              const std::function<void(Plan&, Slots, Pointers)>& call) {
  std::vector<Slot*> slots;
  for (int at = shard; at < shard + shards; ++at) {
    const Plans* plans = states_[at].plans;
    if (plans == nullptr) continue;
    slots.push_back(&slot(node, at));
    if (at + 1 < shard + shards && states_[at + 1].plans == plans) continue;
    call(*(*plans)[node], slots, values_of(node));
    slots.clear();
  }
}

void Net::forward(int first, int last, int shard, int shards) {
  for (int node = first; node < last; ++node)
    run(node, shard, shards, [](Plan& plan, Slots slots, Pointers at) { plan.forward(slots, at); });
}

void Net::backward_input(int first, int last, int shard, int shards) {
  for (int node = last - 1; node >= first; --node) {
    // The gradient of the model's input is not needed.
    const bool reads_input = model_.nodes[node].input == kModelInput;
    const auto is_needed = [&](const Plan& plan) { return !reads_input || plan.joint_gradients; };
    for (int at = shard; at < shard + shards; ++at) {
      if (states_[at].plans == nullptr) continue;
      const Plan& plan = *(*states_[at].plans)[node];
      Slot& own = slot(node, at);
      own.diff_output = diff_of(node, at);
      if (own.diff_input.size() == 0 && !plan.passes_gradient && is_needed(plan))
        own.diff_input = Buffer(plan.input.floats);
    }
    run(node, shard, shards, [&](Plan& plan, Slots slots, Pointers at) {
      if (is_needed(plan)) plan.backward_input(slots, at);
    });
  }
}

void Net::backward_weight(int first, int last, int shard, int shards, GradientSink& sink) {
  for (int node = last - 1; node >= first; --node) {
    if (model_.nodes[node].layer.parameters.empty()) continue;
    const int all = model_.nodes[node].layer.pieces;
    const int step = sink.by_piece() ? 1 : all;
    for (int piece = 0; piece < all; piece += step)
      for (int at = shard; at < shard + shards; ++at)
        backward_weight(node, at, {piece, piece + step}, sink);
  }
}

void Net::backward_weight(int node, int shard, Pieces pieces, GradientSink& sink) {
  const Model::Range range = model_.parameters_of(node, node + 1);
  std::vector<float*> grads;
  for (std::size_t i = range.first; i < range.last; ++i) grads.push_back(sink.next(i));
  State& state = states_[shard];
  if (state.plans != nullptr) {
    (*state.plans)[node]->backward_weight(state.slots[node], pieces, grads);
  } else {
    const auto all = static_cast<std::size_t>(model_.nodes[node].layer.pieces);
    const auto part = static_cast<std::size_t>(pieces.last - pieces.first);
    for (std::size_t i = range.first; i < range.last; ++i)
      std::fill_n(grads[i - range.first], model_.parameters[i].count() / all * part, 0.F);
  }
  for (std::size_t i = range.first; i < range.last; ++i) sink.done(i);
}

void Net::backward(GradientSink& sink) {
  for (int node = static_cast<int>(model_.nodes.size()) - 1; node >= 0; --node) {
    backward_input(node, node + 1, 0, shards());
    backward_weight(node, node + 1, 0, shards(), sink);
  }
}

}  // namespace nn
