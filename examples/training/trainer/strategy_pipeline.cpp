// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <map>

#include "c10d/parallel/pipeline.h"
#include "examples/training/nn/errors.h"
#include "examples/training/trainer/strategy.h"

namespace nn {
namespace {

using c10d::View;
using namespace c10d::parallel;

// Adds up the micro-batches' gradients along the tree.
class TreeSink final : public GradientSink {
 public:
  TreeSink(const Model& model, Model::Range range, int shards) : range_(range) {
    for (std::size_t i = range.first; i < range.last; ++i)
      sums_.emplace_back(shards, ShardRange{0, shards}, model.parameters[i].count());
  }
  float* next(std::size_t parameter) override {
    return static_cast<float*>(sums_[parameter - range_.first].next().data);
  }
  void done(std::size_t parameter) override { sums_[parameter - range_.first].done(); }
  // After the last shard, for the caller to use up.
  View sum(std::size_t parameter) { return sums_[parameter - range_.first].sum(); }
  void reset() {
    for (auto& sum : sums_) sum.reset();
  }

 private:
  Model::Range range_;
  std::vector<ShardAccumulator> sums_;
};

// Nodes [first, last) of the model. A micro-batch is a shard of the batch.
class LayerStage final : public Stage {
 public:
  LayerStage(const Task& task, int first, int last)
      : task_(task),
        first_(first),
        last_(last),
        weights_(task, task.model.parameters_of(first, last)),
        net_(task.model, task.shards),
        feed_(task, net_, task.shards, {0, task.shards}),
        gradients_(task.model, weights_.range(), task.shards),
        inputs_(static_cast<std::size_t>(task.shards)) {
    weights_.put_into(net_);
  }

  void begin(std::span<const std::int64_t> batch, std::uint64_t step) {
    batch_ = batch;
    step_ = step;
    score = {};
    gradients_.reset();
  }

  std::vector<Activation> forward(int micro, std::span<const Activation> inputs) override {
    feed_.load(batch_, micro, step_);
    if (first_ > 0) {
      inputs_[micro] = inputs[0];
      net_.set_output(first_ - 1, micro, static_cast<const float*>(inputs[0].data.data));
    }
    net_.forward(first_, last_, micro, 1);
    if (is_last()) {
      score = score + feed_.score(micro);
      return {};
    }
    return {activation(last_ - 1, micro, const_cast<float*>(net_.output(last_ - 1, micro)))};
  }

  std::vector<Activation> backward_input(int micro, std::span<const Activation> grads) override {
    if (!is_last()) {
      diffs_[micro] = grads[0];
      net_.set_diff(last_ - 1, micro, static_cast<float*>(grads[0].data.data));
    }
    net_.backward_input(first_, last_, micro, 1);
    if (first_ == 0) return {};
    const bool empty = net_.samples(micro) == 0;
    return {activation(first_ - 1, micro, empty ? nullptr : net_.diff_of(first_ - 1, micro))};
  }

  void backward_weight(int micro) override {
    net_.backward_weight(first_, last_, micro, 1, gradients_);
    diffs_.erase(micro);
  }

  void update(std::uint64_t step, float rate) {
    for (std::size_t i = weights_.range().first; i < weights_.range().last; ++i) {
      const View gradient = gradients_.sum(i);
      divide(gradient, rows_of(task_, batch_));
      weights_.update(i, 0, {static_cast<const float*>(gradient.data), gradient.count}, step, rate);
    }
  }

  Weights& weights() { return weights_; }
  Score score;

 private:
  bool is_last() const { return last_ == static_cast<int>(task_.model.nodes.size()); }
  // As it lies in memory, blocks included: the next stage computes what one process would.
  Activation activation(int node, int micro, float* data) {
    const std::size_t floats = net_.samples(micro) == 0 ? 0 : net_.layout(node, micro).floats;
    return {{static_cast<std::int64_t>(floats)}, View(data, floats, c10d::DType::f32), nullptr};
  }

  const Task& task_;
  int first_, last_;
  Weights weights_;
  Net net_;
  Feed feed_;
  TreeSink gradients_;
  std::vector<Activation> inputs_;
  std::map<int, Activation> diffs_;
  std::span<const std::int64_t> batch_;
  std::uint64_t step_ = 0;
};

// Stages of about as many layers each.
std::vector<int> borders_of(const Model& model, int stages) {
  const std::vector<int> cuts = model.cuts();
  const int parts = static_cast<int>(cuts.size()) + 1;
  if (parts < stages)
    throw_invalid("model {} can be cut into {} stages, not into {}", model.name, parts, stages);
  std::vector<int> borders{0};
  for (int stage = 1; stage < stages; ++stage) borders.push_back(cuts[stage * parts / stages - 1]);
  borders.push_back(static_cast<int>(model.nodes.size()));
  return borders;
}

class Staged final : public Strategy {
 public:
  Staged(const Task& task, c10d::ProcessGroup& group, Trace& trace) : Strategy(task, group, trace) {
    const Options& options = task.options;
    const bool folds = options.pipeline == "interleaved" || options.pipeline == "zb-v";
    const int stages = options.stages_per_rank > 0 ? options.stages_per_rank : 1 + folds;
    const Schedule schedule = make_schedule(options.pipeline, group.size(), task.shards, stages);
    rank_of_stage_ = validate(schedule).rank_of_stage;
    borders_ = borders_of(task.model, static_cast<int>(rank_of_stage_.size()));
    std::map<int, Stage*> own;
    for (int stage = 0; stage < static_cast<int>(rank_of_stage_.size()); ++stage)
      if (rank_of_stage_[stage] == group.rank()) {
        stages_[stage] = std::make_unique<LayerStage>(task, borders_[stage], borders_[stage + 1]);
        own[stage] = stages_[stage].get();
      }
    use_threads(1);
    pipeline_.emplace(
        group, own,
        PipelineOptions{.schedule = schedule,
                        .on_begin = [this](const Action&) { began_ = Trace::Clock::now(); },
                        .on_end = [this](const Action& action) { record(action); }});
  }

  Score step(std::span<const std::int64_t> batch, std::uint64_t step, float rate) override {
    for (auto& [number, stage] : stages_) stage->begin(batch, step);
    pipeline_->step();
    before_update_();
    Score score;
    const Traced span(trace_, "optimizer");
    for (auto& [number, stage] : stages_) {
      stage->update(step, rate);
      score = score + stage->score;
    }
    return score;
  }

  WholeValues collect() override {
    std::vector<std::vector<float>> all;
    for (int stage = 0; stage < static_cast<int>(rank_of_stage_.size()); ++stage) {
      const Model::Range range = task_.model.parameters_of(borders_[stage], borders_[stage + 1]);
      const auto own = stages_.find(stage);
      for (std::size_t i = range.first; i < range.last; ++i) {
        auto& values = all.emplace_back(task_.model.parameters[i].count());
        if (own != stages_.end())
          std::copy_n(own->second->weights().value(i), values.size(), values.data());
        group_.broadcast(values, rank_of_stage_[stage]);
      }
    }
    return all;
  }

  std::vector<TensorPart> parts() override {
    std::vector<TensorPart> all;
    for (auto& [number, stage] : stages_)
      for (TensorPart& part : stage->weights().parts()) all.push_back(std::move(part));
    return all;
  }

 private:
  void record(const Action& action) {
    const bool travels = action.kind >= ActionKind::send_f;
    const Trace::Clock::time_point end = Trace::Clock::now();
    if (travels) waited_ += end - began_;
    if (trace_.enabled())
      trace_.add(travels ? Trace::Track::communication : Trace::Track::compute, to_string(action),
                 began_, end);
  }

  std::vector<int> rank_of_stage_;
  std::vector<int> borders_;
  std::map<int, std::unique_ptr<LayerStage>> stages_;
  Trace::Clock::time_point began_{};
  std::optional<Pipeline> pipeline_;
};

}  // namespace

std::unique_ptr<Strategy> staged(const Task& task, c10d::ProcessGroup& group, Trace& trace) {
  return std::make_unique<Staged>(task, group, trace);
}

}  // namespace nn
