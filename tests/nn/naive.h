// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

// The layers once more, in double precision, row by row, as their definitions read: the oracle.
namespace nn::naive {

using Vector = std::vector<double>;
using Vectors = std::vector<Vector>;
struct Image {
  int samples, channels, height, width;
  std::size_t at(int n, int c, int y, int x) const {
    return ((static_cast<std::size_t>(n) * channels + c) * height + y) * width + x;
  }
};

struct Gradients {
  Vector input;
  Vectors parameters;  // those that are trained, in their order
};

struct Definition {
  std::function<Vector(const Vector& input, const Vectors& parameters)> forward;
  std::function<Gradients(const Vector& input, const Vectors& parameters, const Vector& diff)>
      backward;
};

Definition conv2d(Image image, int out, int kernel, int stride, int padding);
Definition max_pool(Image image, int kernel, int stride, int padding);
Definition average_pool(Image image);
Definition batch_norm(Image image, bool relu);
Definition relu();
Definition gelu();
Definition flatten();
Definition add();  // of a tensor to itself
Definition linear(int in, int out);
Definition layer_norm(int width);
Definition attention(int samples, int time, int width, int heads);
Definition embedding(int time, int width);

double cross_entropy(const Vector& logits, const std::vector<std::int32_t>& labels);
Vector cross_entropy_gradient(const Vector& logits, const std::vector<std::int32_t>& labels);

}  // namespace nn::naive
