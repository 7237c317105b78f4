// SPDX-License-Identifier: BSD-3-Clause
#include "tests/nn/naive.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nn::naive {

Vector conv2d(const Vector& input, const Vectors& parameters, Image image, int out, int kernel,
              int stride, int padding) {
  const Image to{image.samples, out, (image.height + 2 * padding - kernel) / stride + 1,
                 (image.width + 2 * padding - kernel) / stride + 1};
  const bool in_blocks = image.channels % 16 == 0 && out % 16 == 0;
  const auto place_of = [&](int c, int i, int ky, int kx) {
    if (!in_blocks) return ((ky * kernel + kx) * image.channels + i) * out + c;
    const int block = ((c / 16 * (image.channels / 16) + i / 16) * kernel + ky) * kernel + kx;
    return (block * 16 + i % 16) * 16 + c % 16;
  };
  Vector result;
  for (int n = 0; n < to.samples; ++n)
    for (int c = 0; c < out; ++c)
      for (int y = 0; y < to.height; ++y)
        for (int x = 0; x < to.width; ++x) {
          double sum = parameters.size() > 1 ? parameters[1][c] : 0;
          for (int i = 0; i < image.channels; ++i)
            for (int ky = 0; ky < kernel; ++ky)
              for (int kx = 0; kx < kernel; ++kx) {
                const int iy = y * stride + ky - padding, ix = x * stride + kx - padding;
                if (iy < 0 || ix < 0 || iy >= image.height || ix >= image.width) continue;
                sum += input[image.at(n, i, iy, ix)] * parameters[0][place_of(c, i, ky, kx)];
              }
          result.push_back(sum);
        }
  return result;
}

Vector max_pool(const Vector& input, Image image, int kernel, int stride, int padding) {
  Vector result;
  for (int n = 0; n < image.samples; ++n)
    for (int c = 0; c < image.channels; ++c)
      for (int y = -padding; y + kernel <= image.height + padding; y += stride)
        for (int x = -padding; x + kernel <= image.width + padding; x += stride) {
          double highest = -std::numeric_limits<double>::infinity();
          for (int iy = std::max(y, 0); iy < std::min(y + kernel, image.height); ++iy)
            for (int ix = std::max(x, 0); ix < std::min(x + kernel, image.width); ++ix)
              highest = std::max(highest, input[image.at(n, c, iy, ix)]);
          result.push_back(highest);
        }
  return result;
}

Vector average_pool(const Vector& input, Image image) {
  const int pixels = image.height * image.width;
  Vector result(input.size() / pixels);
  for (std::size_t i = 0; i < input.size(); ++i) result[i / pixels] += input[i] / pixels;
  return result;
}

Vector batch_norm(const Vector& input, const Vectors& parameters, Image image, bool relu) {
  Vector result(input.size());
  const double elements = image.samples * image.height * image.width;
  for (int c = 0; c < image.channels; ++c) {
    double mean = 0, variance = 0;
    const auto each = [&](auto&& visit) {
      for (int n = 0; n < image.samples; ++n)
        for (int y = 0; y < image.height; ++y)
          for (int x = 0; x < image.width; ++x) visit(image.at(n, c, y, x));
    };
    each([&](std::size_t i) { mean += input[i] / elements; });
    each([&](std::size_t i) { variance += (input[i] - mean) * (input[i] - mean) / elements; });
    each([&](std::size_t i) {
      const double y =
          (input[i] - mean) / std::sqrt(variance + 1e-5) * parameters[0][c] + parameters[1][c];
      result[i] = relu ? std::max(y, 0.0) : y;
    });
  }
  return result;
}

Vector relu(const Vector& input) {
  Vector result = input;
  for (double& x : result) x = std::max(x, 0.0);
  return result;
}

Vector gelu(const Vector& input) {
  Vector result = input;
  for (double& x : result)
    x = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return result;
}

Vector linear(const Vector& input, const Vectors& parameters, int in, int out) {
  Vector result;
  for (std::size_t row = 0; row < input.size() / in; ++row)
    for (int o = 0; o < out; ++o) {
      double sum = parameters[1][o];
      for (int i = 0; i < in; ++i) sum += input[row * in + i] * parameters[0][o * in + i];
      result.push_back(sum);
    }
  return result;
}

Vector layer_norm(const Vector& input, const Vectors& parameters, int width) {
  Vector result(input.size());
  for (std::size_t row = 0; row < input.size(); row += width) {
    double mean = 0, variance = 0;
    for (int i = 0; i < width; ++i) mean += input[row + i] / width;
    for (int i = 0; i < width; ++i) variance += std::pow(input[row + i] - mean, 2) / width;
    for (int i = 0; i < width; ++i)
      result[row + i] = (input[row + i] - mean) / std::sqrt(variance + 1e-5) * parameters[0][i] +
                        parameters[1][i];
  }
  return result;
}

Vector attention(const Vector& input, int samples, int time, int width, int heads) {
  Vector result(static_cast<std::size_t>(samples) * time * width);
  const int size = width / heads;
  const auto part = [&](int n, int t, int which, int h, int i) {
    return input[(static_cast<std::size_t>(n) * time + t) * 3 * width + which * width + h * size +
                 i];
  };
  for (int n = 0; n < samples; ++n)
    for (int h = 0; h < heads; ++h)
      for (int t = 0; t < time; ++t) {
        Vector weight;
        double total = 0;
        for (int s = 0; s <= t; ++s) {
          double score = 0;
          for (int i = 0; i < size; ++i) score += part(n, t, 0, h, i) * part(n, s, 1, h, i);
          weight.push_back(std::exp(score / std::sqrt(size)));
          total += weight.back();
        }
        for (int s = 0; s <= t; ++s)
          for (int i = 0; i < size; ++i)
            result[(static_cast<std::size_t>(n) * time + t) * width + h * size + i] +=
                weight[s] / total * part(n, s, 2, h, i);
      }
  return result;
}

double cross_entropy(const Vector& logits, const std::vector<std::int32_t>& labels) {
  const std::size_t classes = logits.size() / labels.size();
  double loss = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < classes; ++i) sum += std::exp(logits[row * classes + i]);
    loss += std::log(sum) - logits[row * classes + labels[row]];
  }
  return loss;
}

}  // namespace nn::naive
