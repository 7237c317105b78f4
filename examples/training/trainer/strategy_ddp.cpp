// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "c10d/parallel/ddp.h"
#include "examples/training/trainer/strategy.h"

namespace nn {
namespace {

using namespace c10d::parallel;

// A part of a parameter whose gradient is made, reduced and applied while it is in the cache.
struct Piece {
  std::size_t parameter;
  std::size_t first, count;  // elements
};

// Of all parameters, one behind the other.
std::vector<Piece> pieces_of(const Model& model) {
  std::vector<Piece> all;
  for (const Node& node : model.nodes)
    for (std::size_t i = 0; i < node.layer.parameters.size(); ++i) {
      const std::size_t parameter = node.first_parameter + i;
      const auto pieces = static_cast<std::size_t>(node.layer.pieces);
      const std::size_t count = model.parameters[parameter].count() / pieces;
      for (std::size_t k = 0; k < pieces; ++k) all.push_back({parameter, k * count, count});
    }
  return all;
}

// To the reducer each is a parameter.
std::vector<ParamSpec> specs_of(const Model& model, std::span<const Piece> pieces) {
  std::vector<ParamSpec> specs;
  for (const Piece& piece : pieces) {
    ParamSpec spec = model.parameters[piece.parameter];
    if (piece.count < spec.count()) {
      spec.name += fmt::format("[{}:{}]", piece.first, piece.first + piece.count);
      spec.shape = {static_cast<std::int64_t>(piece.count)};
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

// Gradients are written into the reducer's buckets, which leave as soon as they are full.
class BucketSink final : public GradientSink {
 public:
  BucketSink(Reducer& reducer, Trace& trace, std::span<const Piece> pieces, int shards)
      : reducer_(reducer), shards_(static_cast<std::size_t>(shards)) {
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (pieces[i].first == 0)
        marks_.push_back({.first_piece = i, .pieces = 1});
      else
        ++marks_.back().pieces;
    if (!trace.enabled()) return;
    times_ = std::make_shared<Times>();
    times_->ready.resize(pieces.size());
    reducer.on_bucket_done(
        [times = times_, &trace](const Bucket& bucket) { times->record(trace, bucket); });
  }
  bool by_piece() const override { return true; }
  float* next(std::size_t parameter) override {
    return reinterpret_cast<float*>(reducer_.grad_view(piece_of(marks_[parameter])).data());
  }
  void done(std::size_t parameter) override {
    Marks& marks = marks_[parameter];
    const std::size_t piece = piece_of(marks);
    marks.done = (marks.done + 1) % (marks.pieces * shards_);
    if (times_) times_->ready[piece] = Trace::Clock::now();
    reducer_.mark_ready(piece);
  }

 private:
  // Of a parameter in this step: all shards of the first piece, then those of the next.
  struct Marks {
    std::size_t first_piece, pieces;
    std::size_t done = 0;
  };
  std::size_t piece_of(const Marks& marks) const {
    return marks.first_piece + marks.done / shards_;
  }

  // The reducer's thread may still write here when the sink is gone.
  struct Times {
    std::vector<Trace::Clock::time_point> ready;  // per piece
    Trace::Clock::time_point begin{};

    // On the wire from its last gradient, or the end of the bucket before, to its mean.
    void record(Trace& trace, const Bucket& bucket) {
      for (const auto& param : bucket.params) begin = std::max(begin, ready[param.index]);
      const Trace::Clock::time_point end = Trace::Clock::now();
      trace.add(Trace::Track::communication, "bucket " + std::to_string(bucket.index), begin, end);
      begin = end;
    }
  };

  Reducer& reducer_;
  const std::size_t shards_;
  std::vector<Marks> marks_;      // per parameter
  std::shared_ptr<Times> times_;  // null: no trace
};

class Replicated final : public WholeModel {
 public:
  Replicated(const Task& task, c10d::ProcessGroup& group, Trace& trace)
      : WholeModel(task, group, trace),
        owned_(shards_of(task.shards, group.rank(), group.size())),
        net_(task.model, owned_.count()),
        feed_(task, net_, task.shards, owned_),
        pieces_(pieces_of(task.model)),
        reducer_(group, specs_of(task.model, pieces_), reducer_options(task)),
        gradients_(reducer_, trace, pieces_, owned_.count()) {
    weights_.put_into(net_);
    use_threads(1);
  }

  Score step(std::span<const std::int64_t> batch, std::uint64_t step, float rate) override {
    const Score score = forward(feed_, batch, step);
    reducer_.begin_step({.samples = score.rows});
    if (score.rows > 0) {
      const Traced span(trace_, "backward");
      net_.backward(gradients_);
    }
    before_update_();
    std::chrono::duration<double> updating{};
    {
      Traced span(trace_, "wait for gradients");
      span.add_to(waited_);
      reducer_.finish([&](const Bucket& bucket) {
        Traced update(trace_, "optimizer");
        update.add_to(updating);
        for (const auto& param : bucket.params) {
          const Piece& piece = pieces_[param.index];
          const auto* const gradient = static_cast<const float*>(bucket.gradient.data);
          weights_.update(piece.parameter, piece.first, {gradient + param.offset, piece.count},
                          step, rate);
        }
      });
    }
    waited_ -= updating;
    return score;
  }

  bool holds_all() const override { return true; }

 private:
  ShardRange owned_;
  Net net_;
  Feed feed_;
  const std::vector<Piece> pieces_;
  Reducer reducer_;
  BucketSink gradients_;
};

}  // namespace

ReducerOptions reducer_options(const Task& task) {
  return {.mode = task.options.reproducible ? ReduceMode::reproducible : ReduceMode::fast,
          .shards = task.shards};
}

std::unique_ptr<Strategy> replicated(const Task& task, c10d::ProcessGroup& group, Trace& trace) {
  return std::make_unique<Replicated>(task, group, trace);
}

}  // namespace nn
