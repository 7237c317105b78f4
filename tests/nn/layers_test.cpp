// SPDX-License-Identifier: BSD-3-Clause
// E0: every layer against its definition in double precision, whose gradients are checked against
// central differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "examples/training/nn/net.h"
#include "tests/nn/naive.h"
#include "tests/nn/run_layer.h"

namespace nn { namespace {

using naive::Definition;
using naive::Gradients;
using naive::Image;
using naive::Vector;
using naive::Vectors;

Vector random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Vector values(count);
  // Exact in float, so that both sides start from the same numbers.
  for (double& value : values)
    value = static_cast<double>(std::uniform_real_distribution<float>(-1, 1)(random));
  return values;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// In double precision, at up to 48 places, spread over the tensor.
void expect_central_differences(const Vector& gradient, Vector& variable,
                                const std::function<double()>& loss, const std::string& what) {
  constexpr double kStep = 1e-5, kAgreement = 1e-6;
  ASSERT_EQ(gradient.size(), variable.size()) << what;
  const double bound = kAgreement * largest(gradient);
  for (std::size_t place = 0; place < std::min<std::size_t>(48, gradient.size()); ++place) {
    const std::size_t i = place * 7919 % gradient.size();
    const double before = variable[i];
    variable[i] = before + kStep;
    const double above = loss();
    variable[i] = before - kStep;
    const double below = loss();
    variable[i] = before;
    ASSERT_NEAR(gradient[i], (above - below) / (2 * kStep), bound) << what << "[" << i << "]";
  }
}

Vectors random_parameters(const Layer& layer) {
  Vectors values;
  for (const Parameter& parameter : layer.parameters)
    values.push_back(random_values(count_of(parameter.shape), 7 + values.size()));
  return values;
}

void expect_layer(const Layer& layer, const Layout& from, const Definition& definition,
                  const Vector& given = {}) {
  Vector x = given.empty() ? random_values(count_of(from.shape), 1) : given;
  Vectors parameters = random_parameters(layer);
  const Vector y = definition.forward(x, parameters);
  const Vector direction = random_values(y.size(), 3);
  const Gradients gradients = definition.backward(x, parameters, direction);
  const auto loss = [&] { return dot(definition.forward(x, parameters), direction); };
  const LayerRun run = run_layer(layer, from, x, parameters, direction);
  expect_near(run.output, y, "output");
  if (!gradients.input.empty()) {
    expect_central_differences(gradients.input, x, loss, "input");
    if (!run.diff_input.empty()) expect_near(run.diff_input, gradients.input, "input");
  }
  for (std::size_t i = 0; i < layer.parameters.size(); ++i) {
    if (layer.parameters[i].rule == Rule::statistic) continue;
    const std::string& name = layer.parameters[i].name;
    expect_central_differences(gradients.parameters.at(i), parameters[i], loss, name);
    expect_near(run.gradients[i], gradients.parameters[i], name);
  }
}

// As a convolution before it would leave it: in blocks where this CPU has them.
Layout after_convolution(Image image) {
  return conv2d(16, image.channels, 3, 1, 1, false)
      .plan(Layout::plain({image.samples, 16, image.height, image.width}), true)
      ->output;
}

Layout row_by_row(Image image) {
  return Layout::plain({image.samples, image.channels, image.height, image.width});
}

class Layers : public testing::Test {
 protected:
  void SetUp() override { use_threads(1); }
};

TEST_F(Layers, Conv2d) {
  struct Case {
    Image image;
    int out, kernel, stride, padding;
    bool bias;
  };
  for (const Case& c :
       {Case{{2, 1, 8, 8}, 32, 3, 1, 1, true}, Case{{3, 16, 7, 5}, 32, 3, 2, 1, false},
        Case{{2, 1, 12, 12}, 16, 7, 2, 3, false}, Case{{2, 32, 4, 4}, 16, 1, 2, 0, true},
        Case{{1, 3, 5, 6}, 5, 3, 1, 1, true}}) {
    SCOPED_TRACE(c.out * 1000 + c.kernel * 100 + c.stride);
    const Layer layer = conv2d(c.image.channels, c.out, c.kernel, c.stride, c.padding, c.bias);
    const Definition definition = naive::conv2d(c.image, c.out, c.kernel, c.stride, c.padding);
    expect_layer(layer, row_by_row(c.image), definition);
    if (c.image.channels % 16 == 0) expect_layer(layer, after_convolution(c.image), definition);
  }
}

TEST_F(Layers, MaxPool) {
  const Image image{2, 32, 7, 6};
  for (const Layout& from : {row_by_row(image), after_convolution(image)}) {
    expect_layer(max_pool(2, 2, 0), from, naive::max_pool(image, 2, 2, 0));
    expect_layer(max_pool(3, 2, 1), from, naive::max_pool(image, 3, 2, 1));
  }
}

TEST_F(Layers, AveragePool) {
  const Image image{2, 32, 3, 4};
  for (const Layout& from : {row_by_row(image), after_convolution(image)})
    expect_layer(average_pool(), from, naive::average_pool(image));
}

TEST_F(Layers, BatchNorm) {
  const Image image{4, 32, 3, 2};
  for (const Layout& from : {row_by_row(image), after_convolution(image)})
    for (const bool relu : {false, true})
      expect_layer(batch_norm(32, relu), from, naive::batch_norm(image, relu));
}

TEST_F(Layers, BatchNormPassesOnItsStatisticsTimesTheSamples) {
  const Image image{4, 16, 3, 2};
  const Layer layer = batch_norm(16, false);
  const Layout from = row_by_row(image);
  const Vector x = random_values(count_of(from.shape), 1);
  const LayerRun run = run_layer(layer, from, x, random_parameters(layer), x);
  double sum = 0, squares = 0;
  for (int n = 0; n < 4; ++n)
    for (int i = 0; i < 6; ++i) sum += x[image.at(n, 5, 0, 0) + i] / 24;
  for (int n = 0; n < 4; ++n)
    for (int i = 0; i < 6; ++i) squares += std::pow(x[image.at(n, 5, 0, 0) + i] - sum, 2) / 23;
  EXPECT_NEAR(run.gradients[2][5], 4 * sum, 1e-5);
  EXPECT_NEAR(run.gradients[3][5], 4 * squares, 1e-5);
}

// A net whose first node it is asks for no gradient of its input, only for those of its parameters.
TEST_F(Layers, BatchNormMayBeTheFirstOfANet) {
  struct Collected : GradientSink {
    float* next(std::size_t parameter) override { return at[parameter].data(); }
    void done(std::size_t) override {}
    std::vector<Buffer> at;
  };
  constexpr int kSamples = 4, kChannels = 16, kPixels = 6;
  Model model;
  model.sample = {kChannels, 3, 2};
  model.append("bn", batch_norm(kChannels, false));
  const Vector x = random_values(kSamples * kChannels * kPixels, 1);
  const Vector dy = random_values(x.size(), 2);
  const Vectors parameters = random_parameters(model.nodes[0].layer);
  const Layout layout = Layout::plain({kSamples, kChannels, 3, 2});
  const LayerRun alone = run_layer(model.nodes[0].layer, layout, x, parameters, dy);

  const Buffer input = to_floats(x);
  Buffer diff = to_floats(dy);
  std::vector<Buffer> values;
  Collected gradients;
  Net net(model, 1);
  net.place(0, kSamples, true);
  net.set_output(kModelInput, 0, input.data());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    values.push_back(to_floats(parameters[i]));
    net.values[i] = values.back().data();
    gradients.at.emplace_back(parameters[i].size());
  }
  net.forward(0, 1, 0, 1);
  net.set_diff(0, 0, diff.data());
  net.backward(gradients);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    expect_near({gradients.at[i].data(), gradients.at[i].data() + kChannels}, alone.gradients[i],
                model.parameters[i].name);
}

TEST_F(Layers, ReluAndGelu) {
  const Image image{2, 32, 3, 4};
  for (const Layout& from : {row_by_row(image), after_convolution(image)}) {
    expect_layer(relu(), from, naive::relu());
    expect_layer(gelu(), from, naive::gelu());
  }
}

TEST_F(Layers, FlattenIsRowByRow) {
  const Image image{2, 32, 3, 4};
  for (const Layout& from : {row_by_row(image), after_convolution(image)})
    expect_layer(flatten(), from, naive::flatten());
}

TEST_F(Layers, Add) { expect_layer(add(), Layout::plain({3, 5}), naive::add()); }

TEST_F(Layers, Linear) {
  expect_layer(linear(37, 11), Layout::plain({5, 37}), naive::linear(37, 11));
  expect_layer(linear(8, 24), Layout::plain({2, 3, 8}), naive::linear(8, 24));
}

TEST_F(Layers, LayerNorm) {
  expect_layer(layer_norm(24), Layout::plain({2, 3, 24}), naive::layer_norm(24));
}

TEST_F(Layers, Attention) {
  expect_layer(attention(2), Layout::plain({2, 5, 24}), naive::attention(2, 5, 8, 2));
}

TEST_F(Layers, Embedding) {
  expect_layer(embedding(7, 4, 5), Layout::plain({2, 3}), naive::embedding(3, 5),
               {0, 3, 3, 6, 1, 3});
}

TEST_F(Layers, CrossEntropy) {
  Vector logits = random_values(6 * 10, 5);
  const std::vector<std::int32_t> labels = {3, 9, 0, 0, 5, 7};
  const Buffer floats = to_floats(logits);
  Buffer diff(logits.size());
  const Score score = cross_entropy({floats.data(), floats.size()}, labels, diff.data());
  const auto loss = [&] { return naive::cross_entropy(logits, labels); };
  EXPECT_NEAR(score.loss, loss(), 1e-5);
  EXPECT_EQ(score.rows, 6);
  std::int64_t right = 0;
  for (int row = 0; row < 6; ++row) {
    const auto begin = logits.begin() + row * 10;
    right += std::max_element(begin, begin + 10) - begin == labels[row];
  }
  EXPECT_EQ(score.right, right);
  const Vector gradient = naive::cross_entropy_gradient(logits, labels);
  expect_central_differences(gradient, logits, loss, "logits");
  expect_near({diff.data(), diff.data() + diff.size()}, gradient, "logits");
}

TEST_F(Layers, WrongShapesAndValuesAreNamed) {
  EXPECT_THROW(conv2d(3, 8, 3, 1, 1, true).plan(Layout::plain({1, 4, 8, 8}), true),
               std::invalid_argument);
  EXPECT_THROW(max_pool(3, 1, 0).plan(Layout::plain({1, 4, 2, 2}), true), std::invalid_argument);
  EXPECT_THROW(linear(3, 8).plan(Layout::plain({1, 4}), true), std::invalid_argument);
  EXPECT_THROW(attention(5).plan(Layout::plain({1, 4, 24}), true), std::invalid_argument);
  EXPECT_THROW(embedding(5, 4, 2).plan(Layout::plain({1, 5}), true), std::invalid_argument);
  const std::int32_t label = 10;
  const Buffer logits(10);
  EXPECT_THROW(cross_entropy({logits.data(), 10}, {&label, 1}, nullptr), std::invalid_argument);
}

TEST_F(Layers, PiecesOfAGradientAreThoseOfTheWhole) {
  constexpr std::size_t kChannels = 128, kWeights = kChannels * kChannels * 9;
  const Layer layer = conv2d(kChannels, kChannels, 3, 1, 1, true);
  ASSERT_EQ(layer.pieces, 2);
  const Layout from = Layout::plain({2, kChannels, 4, 4});
  const std::unique_ptr<Plan> plan = layer.plan(from, true);
  const Buffer x = to_floats(random_values(from.floats, 1));
  const Buffer diff = to_floats(random_values(plan->output.floats, 2));
  Slot slot;
  slot.input = x.data();
  slot.diff_output = diff.data();
  const Buffer weights(kWeights), bias(kChannels), weights_piece(kWeights / 2),
      bias_piece(kChannels / 2);
  float* const whole[] = {weights.data(), bias.data()};
  float* const parts[] = {weights_piece.data(), bias_piece.data()};
  plan->backward_weight(slot, {0, 2}, whole);
  for (const int piece : {1, 0}) {
    plan->backward_weight(slot, {piece, piece + 1}, parts);
    const auto same = [&](const Buffer& part, const Buffer& all) {
      const std::size_t bytes = part.size() * sizeof(float);
      return std::memcmp(part.data(), all.data() + piece * part.size(), bytes) == 0;
    };
    EXPECT_TRUE(same(weights_piece, weights)) << piece;
    EXPECT_TRUE(same(bias_piece, bias)) << piece;
  }
  // Each comes from its own channels.
  const Layout plain = Layout::plain(plan->output.shape);
  const Buffer rows(plain.floats);
  copy(plan->output, diff.data(), plain, rows.data());
  Vector sums(kChannels);
  for (std::size_t i = 0; i < plain.floats; ++i) sums[i / 16 % kChannels] += rows.data()[i];
  expect_near({bias.data(), bias.data() + kChannels}, sums, "bias");
}

// What the promise of equal bits stands on: one thread, one shape, any thread, any neighbours.
TEST_F(Layers, AShardHasTheSameBitsInEveryThread) {
  const Layer layer = conv2d(16, 32, 3, 1, 1, true);
  const Layout from = Layout::plain({4, 16, 7, 7});
  const Vector x = random_values(count_of(from.shape), 1);
  const Vector direction = random_values(4 * 32 * 7 * 7, 3);
  std::vector<LayerRun> results(3);
  std::vector<std::thread> threads;
  for (LayerRun& result : results)
    threads.emplace_back([&] {
      use_threads(1);
      result = run_layer(layer, from, x, random_parameters(layer), direction);
    });
  for (std::thread& thread : threads) thread.join();
  for (const LayerRun& result : results) {
    EXPECT_EQ(result.output, results[0].output);
    EXPECT_EQ(result.diff_input, results[0].diff_input);
    EXPECT_EQ(result.gradients, results[0].gradients);
  }
}

}}  // namespace nn
