// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
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

Vector conv2d(const Vector& input, const Vectors& parameters, Image image, int out, int kernel,
              int stride, int padding);
Vector max_pool(const Vector& input, Image image, int kernel, int stride, int padding);
Vector average_pool(const Vector& input, Image image);
Vector batch_norm(const Vector& input, const Vectors& parameters, Image image, bool relu);
Vector relu(const Vector& input);
Vector gelu(const Vector& input);
Vector linear(const Vector& input, const Vectors& parameters, int in, int out);
Vector layer_norm(const Vector& input, const Vectors& parameters, int width);
Vector attention(const Vector& input, int samples, int time, int width, int heads);
double cross_entropy(const Vector& logits, const std::vector<std::int32_t>& labels);

}  // namespace nn::naive
