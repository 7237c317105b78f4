// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "examples/training/nn/tensor.h"

namespace nn {

// What one shard of a batch keeps of one layer between forward and backward. The owner (Net) makes
// the buffers and sets the pointers.
struct Slot {
  const float* input = nullptr;
  const float* second = nullptr;       // of a layer with two inputs
  const float* diff_output = nullptr;  // gradient of the loss by the output
  Buffer output, diff_input, kept;
};
using Slots = std::span<Slot* const>;
using Pointers = std::span<float* const>;  // one per parameter of the layer

// [first, last) of the pieces of a layer's gradients: see Layer::pieces.
struct Pieces {
  int first = 0;
  int last = 1;
};

// A layer at one batch shape: what oneDNN prepares once and every shard of that shape uses. Each
// call works through shards of one thread, in order; a shard's result depends on that shard only.
// Gradients are sums over the samples: the caller that sums the shards divides.
class Plan {
 public:
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  virtual ~Plan() = default;

  Layout input, output;
  std::size_t kept = 0;          // floats of Slot::kept
  bool passes_gradient = false;  // the gradients of its inputs are that of its output: no buffer
  // backward_input computes the gradients of its parameters: it runs even if the gradient of its
  // input is not needed.
  bool joint_gradients = false;

  virtual void forward(Slots shards, Pointers values) = 0;
  virtual void backward_input(Slots shards, Pointers values) = 0;
  // Of a shard: writes (does not add) these pieces of the gradient of each parameter. After
  // backward_input of that shard.
  virtual void backward_weight(Slot&, Pieces, Pointers) {}
};

// What becomes of a parameter in a step.
enum class Rule {
  weight,     // optimizer, with weight decay
  bias,       // optimizer, without
  statistic,  // running mean of what its "gradient" holds
};

struct Parameter {
  std::string name;
  Shape shape;
  Rule rule = Rule::weight;
  float bound = 0;     // initial values are uniform in [-bound, bound], plus
  float constant = 0;  // this
};

struct Layer {
  std::vector<Parameter> parameters;
  // Throws std::invalid_argument for a shape that the layer cannot take.
  std::function<std::unique_ptr<Plan>(const Layout& input, bool training)> plan;
  // Every parameter falls into so many pieces of one length whose gradients are computed apart, to
  // the same bits as together: a caller that sums the shards of one stays in the cache.
  int pieces = 1;
};

// For Layer::plan: makes a P from these arguments, the input and, where P takes it, `training`.
template <class P, class... Args>
auto plan_maker(Args... args) {
  return [=](const Layout& input, bool training) -> std::unique_ptr<Plan> {
    if constexpr (std::is_constructible_v<P, Args..., Layout, bool>)
      return std::make_unique<P>(args..., input, training);
    else
      return std::make_unique<P>(args..., input);
  };
}

// Through oneDNN.
// Weights are [out / 16, in / 16, kernel, kernel, 16 of in, 16 of out] where that divides, as
// oneDNN computes with AVX-512: bringing them there and every shard's gradient back was half of a
// step. Else [kernel, kernel, in, out].
Layer conv2d(int in, int out, int kernel, int stride, int padding, bool bias);
Layer max_pool(int kernel, int stride, int padding);
Layer average_pool();  // over height and width
// Statistics per shard; with the ReLU behind it in the same pass over memory.
Layer batch_norm(int channels, bool relu);
Layer relu();
Layer gelu();
Layer flatten();  // row by row: [n, c h w]

Layer linear(int in, int out, float bound = 0);  // of the last dimension; bound 0: 1 / sqrt(in)
Layer layer_norm(int width);
Layer embedding(int tokens, int length,
                int width);  // of tokens and of positions: [n, t] -> [n, t, w]
Layer attention(int heads);  // causal; [n, t, 3 w] -> [n, t, w]
Layer add();                 // of two inputs

// Cross-entropy of softmax(logits), rows of `classes`: the sum of the losses and how many rows have
// their label on top. Writes the gradient of the sum into diff unless that is null.
struct Score {
  double loss = 0;
  std::int64_t right = 0, rows = 0;
};
Score cross_entropy(std::span<const float> logits, std::span<const std::int32_t> labels,
                    float* diff);

// Below all layers.
// c[m, n] = a[m, k] b[k, n], row by row, with a or b transposed; strides are those of the rows.
struct Matrix {
  const float* data;
  std::int64_t stride;
  bool transposed = false;
};
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, float* c,
              std::int64_t stride, float scale = 1);
void copy(const Layout& from, const float* source, const Layout& to, float* target);
bool same_layout(const Layout& a, const Layout& b);
// Of this thread. Bits are promised for one.
void use_threads(int threads);
// "oneDNN 2.6.3 avx512_core": what decides the bits besides the program.
std::string compute_identity();

}  // namespace nn
