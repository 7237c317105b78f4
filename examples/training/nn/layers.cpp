// SPDX-License-Identifier: BSD-3-Clause
// Layers whose work is a matrix product or one pass over rows. Sums run in a fixed order.

#include <algorithm>
#include <cmath>

#include "examples/training/nn/errors.h"
#include "examples/training/nn/layer.h"

namespace nn {

namespace {

constexpr float kLayerNormEpsilon = 1e-5F;

std::int64_t rows_of(const Layout& layout) {
  return static_cast<std::int64_t>(count_of(layout.shape)) / layout.shape.back();
}

void check_rows(const char* layer, const Layout& from, std::int64_t width) {
  if (from.blocked != nullptr || from.shape.empty() || from.shape.back() != width)
    throw_invalid("{} takes rows of {}, not of {}", layer, width,
                  from.shape.empty() ? 0 : from.shape.back());
}

void sum_rows(const float* rows, std::int64_t count, std::int64_t width, float* sum) {
  std::fill_n(sum, width, 0.F);
  for (std::int64_t row = 0; row < count; ++row)
    for (std::int64_t i = 0; i < width; ++i) sum[i] += rows[row * width + i];
}

class LinearPlan final : public Plan {
 public:
  LinearPlan(std::int64_t in, std::int64_t out, const Layout& from) : in_(in), out_(out) {
    check_rows("linear", from, in);
    input = from;
    Shape shape = from.shape;
    shape.back() = out;
    output = Layout::plain(shape);
    rows_ = rows_of(from);
  }
  void forward(Slots shards, Pointers values) override {
    for (Slot* shard : shards) {
      float* y = shard->output.data();
      multiply(rows_, out_, in_, {shard->input, in_}, {values[0], in_, true}, y, out_);
      for (std::int64_t row = 0; row < rows_; ++row)
        for (std::int64_t i = 0; i < out_; ++i) y[row * out_ + i] += values[1][i];
    }
  }
  void backward_input(Slots shards, Pointers values) override {
    for (Slot* shard : shards)
      multiply(rows_, in_, out_, {shard->diff_output, out_}, {values[0], in_},
               shard->diff_input.data(), in_);
  }
  void backward_weight(Slot& shard, Pieces, Pointers grads) override {
    multiply(out_, in_, rows_, {shard.diff_output, out_, true}, {shard.input, in_}, grads[0], in_);
    sum_rows(shard.diff_output, rows_, out_, grads[1]);
  }

 private:
  std::int64_t in_, out_, rows_ = 0;
};

// Kept: the mean and the inverse deviation of every row.
class LayerNormPlan final : public Plan {
 public:
  LayerNormPlan(std::int64_t width, const Layout& from) : width_(width) {
    check_rows("layer_norm", from, width);
    input = output = from;
    rows_ = rows_of(from);
    kept = 2 * static_cast<std::size_t>(rows_);
  }
  void forward(Slots shards, Pointers values) override {
    const auto width = static_cast<float>(width_);
    for (Slot* shard : shards)
      for (std::int64_t row = 0; row < rows_; ++row) {
        const float* x = shard->input + row * width_;
        float* y = shard->output.data() + row * width_;
        float mean = 0, variance = 0;
        for (std::int64_t i = 0; i < width_; ++i) mean += x[i];
        mean /= width;
        for (std::int64_t i = 0; i < width_; ++i) variance += (x[i] - mean) * (x[i] - mean);
        const float inverse = 1 / std::sqrt(variance / width + kLayerNormEpsilon);
        for (std::int64_t i = 0; i < width_; ++i)
          y[i] = (x[i] - mean) * inverse * values[0][i] + values[1][i];
        shard->kept.data()[2 * row] = mean;
        shard->kept.data()[2 * row + 1] = inverse;
      }
  }
  void backward_input(Slots shards, Pointers values) override {
    const auto width = static_cast<float>(width_);
    for (Slot* shard : shards)
      for (std::int64_t row = 0; row < rows_; ++row) {
        const float* x = shard->input + row * width_;
        const float* dy = shard->diff_output + row * width_;
        float* dx = shard->diff_input.data() + row * width_;
        const float mean = shard->kept.data()[2 * row];
        const float inverse = shard->kept.data()[2 * row + 1];
        float sum = 0, product = 0;
        for (std::int64_t i = 0; i < width_; ++i) {
          const float scaled = dy[i] * values[0][i];
          sum += scaled;
          product += scaled * (x[i] - mean) * inverse;
        }
        for (std::int64_t i = 0; i < width_; ++i)
          dx[i] =
              inverse * (dy[i] * values[0][i] - (sum + (x[i] - mean) * inverse * product) / width);
      }
  }
  void backward_weight(Slot& shard, Pieces, Pointers grads) override {
    std::fill_n(grads[0], width_, 0.F);
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t i = 0; i < width_; ++i)
        grads[0][i] += shard.diff_output[row * width_ + i] *
                       (shard.input[row * width_ + i] - shard.kept.data()[2 * row]) *
                       shard.kept.data()[2 * row + 1];
    sum_rows(shard.diff_output, rows_, width_, grads[1]);
  }

 private:
  std::int64_t width_, rows_ = 0;
};

// Tokens come as floats that hold whole numbers, as every input does.
class EmbeddingPlan final : public Plan {
 public:
  EmbeddingPlan(std::int64_t tokens, std::int64_t length, std::int64_t width, const Layout& from)
      : tokens_(tokens), length_(length), width_(width) {
    if (from.shape.size() != 2 || from.shape[1] > length)
      throw_invalid("embedding takes [n, t], t at most {}", length);
    input = from;
    output = Layout::plain({from.shape[0], from.shape[1], width});
  }
  void forward(Slots shards, Pointers values) override {
    for (Slot* shard : shards)
      for (std::int64_t row = 0; row < rows_of(output); ++row) {
        const float* token = values[0] + token_at(*shard, row) * width_;
        const float* position = values[1] + row % input.shape[1] * width_;
        float* y = shard->output.data() + row * width_;
        for (std::int64_t i = 0; i < width_; ++i) y[i] = token[i] + position[i];
      }
  }
  void backward_input(Slots, Pointers) override {}  // tokens have no gradient
  void backward_weight(Slot& shard, Pieces, Pointers grads) override {
    std::fill_n(grads[0], tokens_ * width_, 0.F);
    std::fill_n(grads[1], length_ * width_, 0.F);
    for (std::int64_t row = 0; row < rows_of(output); ++row) {
      const float* dy = shard.diff_output + row * width_;
      float* token = grads[0] + token_at(shard, row) * width_;
      float* position = grads[1] + row % input.shape[1] * width_;
      for (std::int64_t i = 0; i < width_; ++i) {
        token[i] += dy[i];
        position[i] += dy[i];
      }
    }
  }

 private:
  std::int64_t token_at(const Slot& shard, std::int64_t row) const {
    const auto token = static_cast<std::int64_t>(shard.input[row]);
    if (token < 0 || token >= tokens_) throw_invalid("token {} is out of [0, {})", token, tokens_);
    return token;
  }
  std::int64_t tokens_, length_, width_;
};

// Kept: the probabilities, and room for their gradient: [n, heads, t, t] and [t, t].
class AttentionPlan final : public Plan {
 public:
  AttentionPlan(std::int64_t heads, const Layout& from) : heads_(heads) {
    if (from.blocked != nullptr || from.shape.size() != 3 || from.shape[2] % (3 * heads) != 0)
      throw_invalid("attention of {} heads takes [n, t, 3 w]", heads);
    input = from;
    time_ = from.shape[1];
    width_ = from.shape[2] / 3;
    output = Layout::plain({from.shape[0], time_, width_});
    head_ = width_ / heads;
    scale_ = 1 / std::sqrt(static_cast<float>(head_));
    kept = static_cast<std::size_t>((from.samples() * heads + 1) * time_ * time_);
  }
  void forward(Slots shards, Pointers) override {
    for (Slot* shard : shards)
      for (std::int64_t i = 0; i < input.samples() * heads_; ++i) {
        const float* query = shard->input + offset(i, 3 * width_);
        float* p = shard->kept.data() + i * time_ * time_;
        multiply(time_, time_, head_, {query, 3 * width_}, {query + width_, 3 * width_, true}, p,
                 time_, scale_);
        for (std::int64_t row = 0; row < time_; ++row) softmax_until(p + row * time_, row + 1);
        multiply(time_, head_, time_, {p, time_}, {query + 2 * width_, 3 * width_},
                 shard->output.data() + offset(i, width_), width_);
      }
  }
  void backward_input(Slots shards, Pointers) override {
    for (Slot* shard : shards)
      for (std::int64_t i = 0; i < input.samples() * heads_; ++i) {
        const std::int64_t stride = 3 * width_;
        const float* query = shard->input + offset(i, stride);
        const float* dy = shard->diff_output + offset(i, width_);
        const float* p = shard->kept.data() + i * time_ * time_;
        float* ds = shard->kept.data() + input.samples() * heads_ * time_ * time_;
        float* dx = shard->diff_input.data() + offset(i, stride);
        multiply(time_, head_, time_, {p, time_, true}, {dy, width_}, dx + 2 * width_, stride);
        multiply(time_, time_, head_, {dy, width_}, {query + 2 * width_, stride, true}, ds, time_);
        for (std::int64_t row = 0; row < time_; ++row)
          softmax_gradient(p + row * time_, ds + row * time_);
        multiply(time_, head_, time_, {ds, time_}, {query + width_, stride}, dx, stride, scale_);
        multiply(time_, head_, time_, {ds, time_, true}, {query, stride}, dx + width_, stride,
                 scale_);
      }
  }

 private:
  // Of sample and head i, in rows of `stride`.
  std::int64_t offset(std::int64_t i, std::int64_t stride) const {
    return i / heads_ * time_ * stride + i % heads_ * head_;
  }
  // A row sees itself and what came before.
  void softmax_until(float* row, std::int64_t end) const {
    const float highest = *std::max_element(row, row + end);
    float sum = 0;
    for (std::int64_t i = 0; i < end; ++i) sum += row[i] = std::exp(row[i] - highest);
    for (std::int64_t i = 0; i < end; ++i) row[i] /= sum;
    std::fill(row + end, row + time_, 0.F);
  }
  void softmax_gradient(const float* p, float* diff) const {
    float sum = 0;
    for (std::int64_t i = 0; i < time_; ++i) sum += p[i] * diff[i];
    for (std::int64_t i = 0; i < time_; ++i) diff[i] = p[i] * (diff[i] - sum);
  }
  std::int64_t heads_, time_ = 0, width_ = 0, head_ = 0;
  float scale_ = 1;
};

class FlattenPlan final : public Plan {
 public:
  explicit FlattenPlan(const Layout& from) {
    input = from;
    plain_ = Layout::plain(from.shape);
    output = Layout::plain({from.samples(), static_cast<std::int64_t>(from.per_sample())});
  }
  void forward(Slots shards, Pointers) override {
    for (Slot* shard : shards) copy(input, shard->input, plain_, shard->output.data());
  }
  void backward_input(Slots shards, Pointers) override {
    for (Slot* shard : shards) copy(plain_, shard->diff_output, input, shard->diff_input.data());
  }

 private:
  Layout plain_;
};

class AddPlan final : public Plan {
 public:
  explicit AddPlan(const Layout& from) {
    input = output = from;
    passes_gradient = true;
  }
  void forward(Slots shards, Pointers) override {
    for (Slot* shard : shards) {
      float* y = shard->output.data();
      for (std::size_t i = 0; i < output.floats; ++i) y[i] = shard->input[i] + shard->second[i];
    }
  }
  void backward_input(Slots, Pointers) override {}
};

}  // namespace

Layer linear(int in, int out, float bound) {
  if (bound == 0) bound = 1 / std::sqrt(static_cast<float>(in));
  return {{{"weight", {out, in}, Rule::weight, bound}, {"bias", {out}, Rule::bias, bound}},
          plan_maker<LinearPlan>(in, out)};
}

Layer layer_norm(int width) {
  return {{{"weight", {width}, Rule::bias, 0, 1}, {"bias", {width}, Rule::bias}},
          plan_maker<LayerNormPlan>(width)};
}

Layer embedding(int tokens, int length, int width) {
  constexpr float kBound = 0.035F;  // a deviation of 0.02
  return {{{"token", {tokens, width}, Rule::weight, kBound},
           {"position", {length, width}, Rule::weight, kBound}},
          plan_maker<EmbeddingPlan>(tokens, length, width)};
}

Layer attention(int heads) { return {{}, plan_maker<AttentionPlan>(heads)}; }
Layer flatten() { return {{}, plan_maker<FlattenPlan>()}; }
Layer add() { return {{}, plan_maker<AddPlan>()}; }

Score cross_entropy(std::span<const float> logits, std::span<const std::int32_t> labels,
                    float* diff) {
  Score score;
  if (labels.empty()) return score;
  const std::size_t classes = logits.size() / labels.size();
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const auto label = static_cast<std::size_t>(labels[row]);
    if (labels[row] < 0 || label >= classes)
      throw_invalid("label {} is out of [0, {})", labels[row], classes);
    const float* x = logits.data() + row * classes;
    const float* highest = std::max_element(x, x + classes);
    float sum = 0;
    for (std::size_t i = 0; i < classes; ++i) sum += std::exp(x[i] - *highest);
    score.loss += std::log(sum) - (x[label] - *highest);
    score.right += highest == x + label;
    if (diff == nullptr) continue;
    for (std::size_t i = 0; i < classes; ++i)
      diff[row * classes + i] = std::exp(x[i] - *highest) / sum - (i == label ? 1.F : 0.F);
  }
  score.rows = static_cast<std::int64_t>(labels.size());
  return score;
}

}  // namespace nn
