// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "examples/training/nn/tensor.h"

namespace nn {

// Samples and their labels, in memory.
class DataSet {
 public:
  Shape sample;  // [1, h, w] of an image, [t] of text
  int classes = 0;
  std::int64_t labels_per_sample = 1;
  std::int64_t size = 0;      // samples
  std::vector<float> values;  // of text: the whole of it, and sample i begins at i * stride
  std::vector<std::int32_t> labels;
  std::int64_t stride = 0;  // between the values of two samples; likewise labels

  // Writes the samples of these numbers one behind the other.
  void copy_samples(std::span<const std::int64_t> numbers, float* to,
                    std::int32_t* labels_to) const;

  // Moves an image by these numbers of pixels, less than its height and width. The pixels that
  // come in are background.
  void shift(std::span<float> image, std::int64_t down, std::int64_t right) const;
};

struct Data {
  DataSet train, test;
};

// What --data takes: "digits" (the 8x8 digits that lie in examples/data), a folder with MNIST's
// four files, a file of text (by characters), "text" (this repository's documentation), or "random"
// (28x28 noise, for timings). Throws std::runtime_error that says what is missing.
Data load_data(const std::string& what);

}  // namespace nn
