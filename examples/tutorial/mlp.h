// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "c10d/parallel/parameters.h"
#include "c10d/parallel/reproducible.h"

// Digits, and a model of two layers in plain loops: the part of a tensor framework that the
// tutorial needs. It knows nothing of ranks.
namespace tutorial {

using Samples = std::span<const std::int64_t>;  // numbers of digits in a data set

// Rows of floats, one for each sample.
struct Matrix {
  std::size_t columns = 0;
  std::vector<float> data{};

  std::size_t rows() const { return data.size() / columns; }
  float* row(std::size_t r) { return data.data() + r * columns; }
  const float* row(std::size_t r) const { return data.data() + r * columns; }
};

// One layer. Its weights are a matrix [outputs, inputs + 1], row-major; the last column is the
// bias.
struct Layer {
  const char* name;
  std::size_t inputs, outputs;
  bool relu;  // whether it begins with max(x, 0)

  std::size_t size() const { return outputs * (inputs + 1); }
  c10d::parallel::ParamSpec spec() const {
    return {name, {static_cast<std::int64_t>(outputs), static_cast<std::int64_t>(inputs + 1)}};
  }
  // Uniformly distributed, the same in every process.
  std::vector<float> initial_weights() const {
    std::mt19937 random(1);
    const float scale = std::sqrt(6.0f / static_cast<float>(inputs));
    std::vector<float> weights(size());
    for (float& w : weights) w = scale * (static_cast<float>(random() >> 8) * 0x1p-23f - 1);
    return weights;
  }

  // The outputs for the inputs x.
  Matrix forward(std::span<const float> weights, const Matrix& x) const {
    Matrix y{outputs, std::vector<float>(x.rows() * outputs)};
    for (std::size_t r = 0; r < x.rows(); ++r)
      for (std::size_t o = 0; o < outputs; ++o) {
        const float* w = weights.data() + o * (inputs + 1);
        float sum = w[inputs];
        for (std::size_t i = 0; i < inputs; ++i) sum += w[i] * active(x.row(r)[i]);
        y.row(r)[o] = sum;
      }
    return y;
  }
  // The gradient of the loss by the inputs x; dy is that by the outputs.
  Matrix backward_input(std::span<const float> weights, const Matrix& x, const Matrix& dy) const {
    Matrix dx{inputs, std::vector<float>(x.data.size())};
    for (std::size_t r = 0; r < x.rows(); ++r)
      for (std::size_t o = 0; o < outputs; ++o)
        for (std::size_t i = 0; i < inputs; ++i)
          if (!relu || x.row(r)[i] > 0)
            dx.row(r)[i] += weights[o * (inputs + 1) + i] * dy.row(r)[o];
    return dx;
  }
  // Writes the gradient by the weights: the sum over all rows, not the mean.
  void backward_weight(const Matrix& x, const Matrix& dy, std::span<float> gradient) const {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    for (std::size_t r = 0; r < x.rows(); ++r)
      for (std::size_t o = 0; o < outputs; ++o) {
        float* g = gradient.data() + o * (inputs + 1);
        for (std::size_t i = 0; i < inputs; ++i) g[i] += dy.row(r)[o] * active(x.row(r)[i]);
        g[inputs] += dy.row(r)[o];
      }
  }

 private:
  float active(float x) const { return relu ? std::max(x, 0.0f) : x; }
};

// The model: 8 x 8 pixels, 32 hidden units, 10 digits.
inline const std::array<Layer, 2> kModel = {{{"hidden", 64, 32, false}, {"output", 32, 10, true}}};

// Its parameters, for c10d: the weights of each layer.
inline std::vector<c10d::parallel::ParamSpec> specs() {
  std::vector<c10d::parallel::ParamSpec> all;
  for (const Layer& layer : kModel) all.push_back(layer.spec());
  return all;
}

struct Digits {
  Matrix images{};                     // a row of pixels, from 0 to 1, for each digit
  std::vector<std::uint8_t> labels{};  // 0 to 9

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
  // The images of some samples.
  Matrix take(Samples samples) const {
    Matrix x{images.columns};
    for (const std::int64_t sample : samples) {
      const float* row = images.row(static_cast<std::size_t>(sample));
      x.data.insert(x.data.end(), row, row + images.columns);
    }
    return x;
  }
  // The gradient of the cross-entropy loss by the outputs of the model for these samples.
  Matrix loss_gradient(Samples samples, Matrix y) const {
    for (std::size_t r = 0; r < y.rows(); ++r) {
      softmax(y.row(r), y.columns);
      y.row(r)[labels[static_cast<std::size_t>(samples[r])]] -= 1;
    }
    return y;
  }
  // Mean loss, and part of the digits that the model got right, for outputs of all samples.
  std::pair<double, double> score(Matrix y) const {
    double loss = 0, right = 0;
    for (std::size_t r = 0; r < y.rows(); ++r) {
      float* row = y.row(r);
      softmax(row, y.columns);
      loss -= std::log(row[labels[r]]);
      right += std::max_element(row, row + y.columns) - row == labels[r];
    }
    return {loss / static_cast<double>(size()), right / static_cast<double>(size())};
  }

 private:
  static void softmax(float* row, std::size_t columns) {
    const float largest = *std::max_element(row, row + columns);
    float sum = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += row[i] = std::exp(row[i] - largest);
    for (std::size_t i = 0; i < columns; ++i) row[i] /= sum;
  }
};

// The bytes of a file that gzip made, without the first `header`.
inline std::vector<std::uint8_t> read_gzip(const std::string& path, std::size_t header) {
  const gzFile file = gzopen(path.c_str(), "rb");
  std::vector<std::uint8_t> bytes(1 << 20);
  const int count = file == nullptr ? -1 : gzread(file, bytes.data(), 1 << 20);
  if (file != nullptr) gzclose(file);
  if (count <= static_cast<int>(header)) throw std::runtime_error(path + ": cannot be read");
  return {bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.begin() + count};
}
// The digits of this repository, in MNIST's format. `part`: "train" or "t10k".
inline Digits read_digits(const std::string& part) {
  Digits digits{{64}, read_gzip(TUTORIAL_DATA "/" + part + "-labels-idx1-ubyte.gz", 8)};
  for (const std::uint8_t pixel : read_gzip(TUTORIAL_DATA "/" + part + "-images-idx3-ubyte.gz", 16))
    digits.images.data.push_back(static_cast<float>(pixel) / 255);
  if (digits.images.rows() != digits.labels.size())
    throw std::runtime_error(TUTORIAL_DATA "/" + part + "-*: not as many images as labels");
  return digits;
}

// A range of parts of a batch that is cut into `parts`, as c10d::parallel::samples_of() does.
inline std::vector<Samples> parts_of(Samples batch, c10d::parallel::ShardRange range, int parts) {
  const auto begin = [&](int part) {
    return batch.size() * static_cast<std::size_t>(part) / static_cast<std::size_t>(parts);
  };
  std::vector<Samples> all;
  for (int part = range.first; part < range.last; ++part)
    all.push_back(batch.subspan(begin(part), begin(part + 1) - begin(part)));
  return all;
}
inline std::int64_t count(const std::vector<Samples>& parts) {
  std::size_t count = 0;
  for (const Samples part : parts) count += part.size();
  return static_cast<std::int64_t>(count);
}

// A hash of the bits of these weights, and of `before`.
inline std::uint64_t hash(std::span<const float> weights, std::uint64_t before) {
  for (const float w : weights)
    before = (before ^ std::bit_cast<std::uint32_t>(w)) * 0x100000001b3u;  // FNV-1a, by word
  return before;
}

struct Nothing {
  void operator()(std::size_t) const {}
};
// One pass forward and one back over each of `parts`. weights[l] are those of layer l. For each
// layer, the last one first, and each part in order: writes to gradient(l) the sum over the samples
// of that part, then calls done(l).
template <class Weights, class Gradient, class Done = Nothing>
void forward_backward(const Weights& weights, const Digits& digits,
                      const std::vector<Samples>& parts, Gradient gradient, Done done = {}) {
  std::array<std::vector<Matrix>, kModel.size() + 1> x;
  for (const Samples part : parts) x[0].push_back(digits.take(part));
  for (std::size_t l = 0; l < kModel.size(); ++l) {
    const auto& w = weights[l];
    for (const Matrix& in : x[l]) x[l + 1].push_back(kModel[l].forward(w, in));
  }
  std::vector<Matrix> dy;
  for (std::size_t p = 0; p < parts.size(); ++p)
    dy.push_back(digits.loss_gradient(parts[p], x.back()[p]));
  for (std::size_t l = kModel.size(); l-- > 0;) {
    const auto& w = weights[l];
    for (std::size_t p = 0; p < parts.size(); ++p) {
      kModel[l].backward_weight(x[l][p], dy[p], gradient(l));
      done(l);
      dy[p] = kModel[l].backward_input(w, x[l][p], dy[p]);
    }
  }
}

}  // namespace tutorial
