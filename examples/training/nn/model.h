// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/parallel/parameters.h"
#include "examples/training/nn/layer.h"

namespace nn {

using c10d::parallel::ParamSpec;

inline constexpr int kModelInput = -1;

// One layer at its place in the graph.
struct Node {
  std::string name;
  Layer layer;
  int input = kModelInput;  // the node whose output it reads
  int second = -1;          // the other one, of a layer with two inputs; else -1
  std::size_t first_parameter = 0;
};

// A model: layers in an order in which they can be computed, and the list of their parameters,
// which is all that the trainers see of it.
struct Model {
  std::string name;
  Shape sample;  // of one input
  int classes = 0;
  std::vector<Node> nodes;
  std::vector<ParamSpec> parameters;
  std::vector<Parameter> details;  // of the same parameters

  // Adds a layer that reads the output of the last one, or of `input` and `second`. Its number.
  int append(std::string node_name, Layer layer);
  int append(std::string node_name, Layer layer, int input, int second = -1);

  // Where the list of nodes can be cut so that one tensor passes from the front to the back.
  std::vector<int> cuts() const;
  // The first node of each unit: the smallest stretches between cuts that have parameters.
  std::vector<int> units() const;
  std::size_t elements() const;  // of all parameters
  // Parameters [first, last) of the nodes [first, last).
  struct Range {
    std::size_t first, last;
  };
  Range parameters_of(int first_node, int last_node) const;
};

std::vector<std::string> model_names();
// For inputs of that shape: [channels, height, width] of images, [length] of text. Throws
// std::invalid_argument that lists the names.
Model make_model(std::string_view name, const Shape& sample, int classes);

// The initial values of elements from `first` on: a function of seed, parameter and element,
// the same on every rank.
void initialise(const Model& model, std::size_t parameter, std::uint64_t seed,
                std::span<float> values, std::size_t first = 0);

}  // namespace nn
