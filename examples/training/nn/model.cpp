// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/nn/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "c10d/parallel/philox.h"
#include "examples/training/nn/errors.h"

namespace nn {

int Model::append(std::string node_name, Layer layer) {
  return append(std::move(node_name), std::move(layer), static_cast<int>(nodes.size()) - 1);
}

int Model::append(std::string node_name, Layer layer, int input, int second) {
  const std::size_t first = parameters.size();
  for (Parameter& parameter : layer.parameters) {
    details.push_back(parameter);
    details.back().name = node_name + "." + parameter.name;
    parameters.push_back({details.back().name, parameter.shape, c10d::DType::f32});
  }
  nodes.push_back({std::move(node_name), std::move(layer), input, second, first});
  return static_cast<int>(nodes.size()) - 1;
}

std::vector<int> Model::cuts() const {
  std::vector<int> found;
  for (int cut = 1; cut < static_cast<int>(nodes.size()); ++cut) {
    // Every node behind the cut that reads from before it must read node cut - 1.
    const bool clean = std::all_of(nodes.begin() + cut, nodes.end(), [&](const Node& node) {
      return node.input >= cut - 1 && (node.second < 0 || node.second >= cut - 1);
    });
    if (clean) found.push_back(cut);
  }
  return found;
}

std::vector<int> Model::units() const {
  const auto has_parameters = [&](int first, int last) {
    return std::any_of(nodes.begin() + first, nodes.begin() + last,
                       [](const Node& node) { return !node.layer.parameters.empty(); });
  };
  const std::vector<int> all = cuts();
  std::vector<int> begins{0};
  for (std::size_t i = 0; i < all.size(); ++i) {
    // What has no parameters goes with what is before it.
    const int stop = i + 1 < all.size() ? all[i + 1] : static_cast<int>(nodes.size());
    if (has_parameters(begins.back(), all[i]) && has_parameters(all[i], stop))
      begins.push_back(all[i]);
  }
  return begins;
}

std::size_t Model::elements() const {
  std::size_t sum = 0;
  for (const ParamSpec& spec : parameters) sum += spec.count();
  return sum;
}

Model::Range Model::parameters_of(int first_node, int last_node) const {
  const auto at = [&](int node) {
    return node < static_cast<int>(nodes.size()) ? nodes[node].first_parameter : parameters.size();
  };
  return {at(first_node), at(last_node)};
}

void initialise(const Model& model, std::size_t parameter, std::uint64_t seed,
                std::span<float> values, std::size_t first) {
  const Parameter& detail = model.details[parameter];
  c10d::parallel::PhiloxStream random(seed, 0, parameter, 0);
  for (; first > 0; --first) random.uniform();
  for (float& value : values) value = detail.constant + detail.bound * (2 * random.uniform() - 1);
}

namespace {

Model mlp(const Shape& sample, int classes) {
  constexpr int kHidden = 128;
  Model model{"mlp", sample, classes};
  model.append("flatten", flatten());
  model.append("fc1", linear(static_cast<int>(count_of(sample)), kHidden));
  model.append("relu1", relu());
  model.append("fc2", linear(kHidden, classes));
  return model;
}

void check_image(std::string_view name, const Shape& sample) {
  if (sample.size() != 3)
    throw_invalid("model {} takes images of [channels, height, width], not [{}]", name,
                  fmt::join(sample, ", "));
  // Both halve them twice before anything else looks at them.
  constexpr std::int64_t kLeast = 4;
  if (std::min(sample[1], sample[2]) < kLeast)
    throw_invalid("model {} takes images of at least {}x{}, not {}x{}", name, kLeast, kLeast,
                  sample[1], sample[2]);
}

Model babycnn(const Shape& sample, int classes) {
  check_image("babycnn", sample);
  const int pooled = static_cast<int>(sample[1] / 2 / 2 * (sample[2] / 2 / 2));
  Model model{"babycnn", sample, classes};
  model.append("conv1", conv2d(static_cast<int>(sample[0]), 32, 3, 1, 1, true));
  model.append("relu1", relu());
  model.append("pool1", max_pool(2, 2, 0));
  model.append("conv2", conv2d(32, 64, 3, 1, 1, true));
  model.append("relu2", relu());
  model.append("pool2", max_pool(2, 2, 0));
  model.append("flatten", flatten());
  model.append("fc1", linear(64 * pooled, 128));
  model.append("relu3", relu());
  model.append("fc2", linear(128, classes));
  return model;
}

void append_basic_block(Model& model, const std::string& name, int in, int out, int stride) {
  const int from = static_cast<int>(model.nodes.size()) - 1;
  model.append(name + ".conv1", conv2d(in, out, 3, stride, 1, false));
  model.append(name + ".bn1", batch_norm(out, true));
  model.append(name + ".conv2", conv2d(out, out, 3, 1, 1, false));
  const int main = model.append(name + ".bn2", batch_norm(out, false));
  int shortcut = from;
  if (stride != 1 || in != out) {
    model.append(name + ".downsample.0", conv2d(in, out, 1, stride, 0, false), from);
    shortcut = model.append(name + ".downsample.1", batch_norm(out, false));
  }
  model.append(name + ".add", add(), main, shortcut);
  model.append(name + ".relu", relu());
}

Model resnet18(const Shape& sample, int classes) {
  check_image("resnet18", sample);
  Model model{"resnet18", sample, classes};
  model.append("conv1", conv2d(static_cast<int>(sample[0]), 64, 7, 2, 3, false));
  model.append("bn1", batch_norm(64, true));
  model.append("maxpool", max_pool(3, 2, 1));
  int channels = 64;
  for (int layer = 1; layer <= 4; ++layer)
    for (int block = 0; block < 2; ++block) {
      const int out = 64 << (layer - 1);
      append_basic_block(model, fmt::format("layer{}.{}", layer, block), channels, out,
                         layer > 1 && block == 0 ? 2 : 1);
      channels = out;
    }
  model.append("avgpool", average_pool());
  model.append("flatten", flatten());
  model.append("fc", linear(channels, classes));
  return model;
}

void append_gpt_block(Model& model, const std::string& name, int width, int heads) {
  const int from = static_cast<int>(model.nodes.size()) - 1;
  model.append(name + ".ln1", layer_norm(width));
  model.append(name + ".qkv", linear(width, 3 * width, 0.035F));
  model.append(name + ".attention", attention(heads));
  const int attended = model.append(name + ".projection", linear(width, width, 0.035F));
  const int middle = model.append(name + ".add1", add(), attended, from);
  model.append(name + ".ln2", layer_norm(width));
  model.append(name + ".fc1", linear(width, 4 * width, 0.035F));
  model.append(name + ".gelu", gelu());
  const int fed = model.append(name + ".fc2", linear(4 * width, width, 0.035F));
  model.append(name + ".add2", add(), fed, middle);
}

Model gpt(const Shape& sample, int classes) {
  constexpr int kWidth = 64, kHeads = 4, kBlocks = 2;
  if (sample.size() != 1) throw_invalid("model gpt takes text: --data text");
  Model model{"gpt", sample, classes};
  model.append("embedding", embedding(classes, static_cast<int>(sample[0]), kWidth));
  for (int block = 0; block < kBlocks; ++block)
    append_gpt_block(model, fmt::format("block{}", block), kWidth, kHeads);
  model.append("ln", layer_norm(kWidth));
  model.append("head", linear(kWidth, classes, 0.035F));
  return model;
}

}  // namespace

std::vector<std::string> model_names() { return {"mlp", "babycnn", "resnet18", "gpt"}; }

Model make_model(std::string_view name, const Shape& sample, int classes) {
  if (name == "mlp") return mlp(sample, classes);
  if (name == "babycnn") return babycnn(sample, classes);
  if (name == "resnet18") return resnet18(sample, classes);
  if (name == "gpt") return gpt(sample, classes);
  throw_invalid("no model is named {}; there are {}", name, fmt::join(model_names(), ", "));
}

}  // namespace nn
