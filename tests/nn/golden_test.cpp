// SPDX-License-Identifier: BSD-3-Clause
// E0: every layer and optimizer against PyTorch, as make_golden.py wrote it down.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/training/nn/optimizer.h"
#include "tests/nn/run_layer.h"

namespace nn { namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json all = Json::parse(std::ifstream(C10D_NN_GOLDEN));
  return all;
}

Layer layer_of(const Json& what) {
  const auto number = [&](const char* key) { return what.at(key).get<int>(); };
  const std::map<std::string, std::function<Layer()>> layers = {
      {"conv2d",
       [&] {
         return conv2d(number("in"), number("out"), number("kernel"), number("stride"),
                       number("padding"), what.at("bias"));
       }},
      {"max_pool", [&] { return max_pool(number("kernel"), number("stride"), number("padding")); }},
      {"average_pool", average_pool},
      {"batch_norm", [&] { return batch_norm(number("channels"), what.at("relu")); }},
      {"relu", relu},
      {"gelu", gelu},
      {"flatten", flatten},
      {"linear", [&] { return linear(number("in"), number("out")); }},
      {"layer_norm", [&] { return layer_norm(number("width")); }},
      {"embedding", [&] { return embedding(number("tokens"), number("length"), number("width")); }},
      {"attention", [&] { return attention(number("heads")); }},
      {"add", add}};
  return layers.at(what.at("type"))();
}

// PyTorch's [out, in, height, width] in the order of conv2d.
Vector convolution_order(const Vector& values, const Shape& shape) {
  Vector result(values.size());
  const std::int64_t out = shape[0], in = shape[1], pixels = shape[2] * shape[3];
  const bool in_blocks = in % 16 == 0 && out % 16 == 0;
  for (std::int64_t c = 0; c < out; ++c)
    for (std::int64_t i = 0; i < in; ++i)
      for (std::int64_t p = 0; p < pixels; ++p) {
        const std::int64_t block = (c / 16 * (in / 16) + i / 16) * pixels + p;
        const std::int64_t to =
            in_blocks ? (block * 16 + i % 16) * 16 + c % 16 : (p * in + i) * out + c;
        result[to] = values[(c * in + i) * pixels + p];
      }
  return result;
}

Vector in_our_order(const Json& parameter, const char* key) {
  const Shape shape = parameter.at("shape");
  const Vector values = parameter.at(key);
  return shape.size() == 4 ? convolution_order(values, shape) : values;
}

// The layouts in which a layer may find its input: row by row, and as a convolution leaves it.
std::vector<Layout> layouts_of(const Shape& shape) {
  std::vector<Layout> all{Layout::plain(shape)};
  if (shape.size() == 4 && shape[1] % 16 == 0)
    all.push_back(conv2d(16, static_cast<int>(shape[1]), 3, 1, 1, false)
                      .plan(Layout::plain({shape[0], 16, shape[2], shape[3]}), true)
                      ->output);
  return all;
}

// A step of the running statistics, then the layer as evaluation uses it.
void expect_statistics(const Json& record, const Layer& layer, const Layout& from,
                       Vectors parameters, const LayerRun& run) {
  for (const std::size_t i : {2, 3}) {
    const Buffer value = to_floats(parameters[i]), gradient = to_floats(run.gradients[i]);
    for (std::size_t c = 0; c < gradient.size(); ++c)
      gradient.data()[c] /= static_cast<float>(from.samples());
    Optimizer("sgd").update(Rule::statistic, 1, 0.1F, {value.data(), value.size()}, gradient.data(),
                            {});
    parameters[i] = {value.data(), value.data() + value.size()};
    expect_near(parameters[i], record["running"][i - 2], layer.parameters[i].name);
  }
  expect_near(evaluate_layer(layer, from, record["input"]["values"], parameters),
              record["evaluated"], "evaluated");
}

TEST(Golden, EveryLayerIsPyTorchs) {
  use_threads(1);
  ASSERT_EQ(golden()["layers"].size(), 18U);
  for (const Json& record : golden()["layers"]) {
    const Layer layer = layer_of(record["layer"]);
    Vectors parameters;
    for (const Json& parameter : record["parameters"])
      parameters.push_back(in_our_order(parameter, "values"));
    if (record.contains("running")) {
      parameters.emplace_back(parameters[0].size(), 0.0);
      parameters.emplace_back(parameters[0].size(), 1.0);
    }
    ASSERT_EQ(parameters.size(), layer.parameters.size());
    for (const Layout& from : layouts_of(record["input"]["shape"])) {
      SCOPED_TRACE(record["name"].get<std::string>() + (from.blocked ? ", in blocks" : ""));
      const LayerRun run =
          run_layer(layer, from, record["input"]["values"], parameters, record["diff_output"]);
      expect_near(run.output, record["output"]["values"], "output");
      if (!run.diff_input.empty() && record.contains("diff_input"))
        expect_near(run.diff_input, record["diff_input"], "input gradient");
      for (std::size_t i = 0; i < record["parameters"].size(); ++i)
        expect_near(run.gradients[i], in_our_order(record["parameters"][i], "gradient"),
                    layer.parameters[i].name);
      if (record.contains("running")) expect_statistics(record, layer, from, parameters, run);
    }
  }
}

TEST(Golden, CrossEntropyIsPyTorchs) {
  const Json& record = golden()["cross_entropy"];
  const Buffer logits = to_floats(record["logits"]["values"]);
  Buffer diff(logits.size());
  const Score score = cross_entropy({logits.data(), logits.size()},
                                    record["labels"].get<std::vector<int>>(), diff.data());
  EXPECT_NEAR(score.loss, record["loss"], kBound * score.loss);
  EXPECT_EQ(score.right, record["right"]);
  expect_near({diff.data(), diff.data() + diff.size()}, record["gradient"], "gradient");
}

TEST(Golden, OptimizersStepAsPyTorchs) {
  ASSERT_EQ(golden()["optimizers"].size(), 3U);
  for (const Json& record : golden()["optimizers"]) {
    const std::string name = record["name"];
    const Rule rule = record["rule"] == "weight" ? Rule::weight : Rule::bias;
    const Optimizer optimizer(name);
    const Buffer values = to_floats(record["start"]);
    std::vector<Buffer> state;
    std::vector<float*> pointers;
    for (int i = 0; i < optimizer.states(); ++i)
      pointers.push_back(state.emplace_back(values.size()).data());
    for (std::size_t step = 0; step < record["gradients"].size(); ++step) {
      SCOPED_TRACE(name + " of a " + record["rule"].get<std::string>() + ", step " +
                   std::to_string(step + 1));
      optimizer.update(rule, step + 1, record["rate"], {values.data(), values.size()},
                       to_floats(record["gradients"][step]).data(), pointers);
      expect_near({values.data(), values.data() + values.size()}, record["values"][step], "value");
    }
  }
}

}}  // namespace nn
