// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/nn/data.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "c10d/parallel/philox.h"
#include "examples/training/nn/errors.h"
#include "examples/training/nn/idx.h"

namespace nn {

void DataSet::copy_samples(std::span<const std::int64_t> numbers, float* to,
                           std::int32_t* labels_to) const {
  const std::size_t floats = count_of(sample);
  for (const std::int64_t number : numbers) {
    const float* from = values.data() + number * stride;
    to = std::copy(from, from + floats, to);
    const std::int32_t* label = labels.data() + (labels_per_sample == 1 ? number : number * stride);
    labels_to = std::copy(label, label + labels_per_sample, labels_to);
  }
}

// Pixels become (pixel / 255 - mean) / deviation, with the mean and deviation of MNIST.
constexpr float kMean = 0.1307F, kDeviation = 0.3081F;

void DataSet::shift(std::span<float> image, std::int64_t down, std::int64_t right) const {
  const std::int64_t height = sample[1], width = sample[2];
  const std::vector<float> before(image.begin(), image.end());
  std::fill(image.begin(), image.end(), -kMean / kDeviation);
  const std::int64_t first = std::max<std::int64_t>(right, 0);
  const std::int64_t last = width + std::min<std::int64_t>(right, 0);
  for (std::int64_t row = 0; row < sample[0] * height; ++row) {
    const std::int64_t from = row % height - down;
    if (from < 0 || from >= height) continue;
    const float* const line = before.data() + (row - down) * width;
    std::copy(line + (first - right), line + (last - right), image.data() + row * width + first);
  }
}

namespace {

DataSet read_images(const std::string& folder, const std::string& part) {
  const Idx images = read_idx(folder + "/" + part + "-images-idx3-ubyte");
  const Idx labels = read_idx(folder + "/" + part + "-labels-idx1-ubyte");
  if (images.shape.size() != 3 || labels.shape.size() != 1 || images.shape[0] != labels.shape[0])
    throw_runtime("{}: images and labels of {} do not belong together", folder, part);
  DataSet set;
  set.sample = {1, images.shape[1], images.shape[2]};
  set.classes = 10;
  set.size = images.shape[0];
  set.stride = static_cast<std::int64_t>(count_of(set.sample));
  set.values.reserve(images.data.size());
  for (const std::uint8_t pixel : images.data)
    set.values.push_back((static_cast<float>(pixel) / 255 - kMean) / kDeviation);
  for (const std::uint8_t label : labels.data) {
    if (label >= set.classes)
      throw_runtime("{}: label {} of {} is not a digit", folder, label, part);
    set.labels.push_back(label);
  }
  return set;
}

DataSet noise(std::int64_t size) {
  DataSet set;
  set.sample = {1, 28, 28};
  set.classes = 10;
  set.size = size;
  set.stride = 28 * 28;
  c10d::parallel::PhiloxStream random(0, 0, 0, 0);
  for (std::int64_t i = 0; i < size * set.stride; ++i)
    set.values.push_back(2 * random.uniform() - 1);
  for (std::int64_t i = 0; i < size; ++i)
    set.labels.push_back(static_cast<std::int32_t>(random.below(10)));
  return set;
}

// Sample i is characters [32 i, 32 i + 32); its labels are the characters after them.
DataSet text_of(const std::string& text) {
  constexpr std::int64_t kLength = 32;
  DataSet set;
  set.sample = {kLength};
  set.classes = 128;
  set.labels_per_sample = kLength;
  set.stride = kLength;
  set.size = (static_cast<std::int64_t>(text.size()) - 1) / kLength;
  for (const unsigned char c : text) {
    const int code = c < 128 ? c : '?';
    set.values.push_back(static_cast<float>(code));
    set.labels.push_back(code);
  }
  set.labels.erase(set.labels.begin());
  return set;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw_runtime("{}: cannot be read", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string documentation() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(C10D_EXAMPLES_DOCS))
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string text;
  for (const auto& path : files) text += content_of(path);
  return text;
}

// The last tenth is for tests.
Data train_and_test(const std::string& text, const std::string& what) {
  const std::size_t cut = text.size() / 10 * 9;
  if (cut < 1000)
    throw_runtime("--data {}: {} bytes of text are too few; give 1,200", what, text.size());
  return {text_of(text.substr(0, cut)), text_of(text.substr(cut))};
}

}  // namespace

Data load_data(const std::string& what) {
  if (what == "random") return {noise(2048), noise(256)};
  if (what == "text") return train_and_test(documentation(), what);
  if (std::filesystem::is_regular_file(what)) return train_and_test(content_of(what), what);
  const std::string folder = what == "digits" ? C10D_EXAMPLES_DATA : what;
  if (!std::filesystem::is_directory(folder))
    throw_runtime(
        "--data {}: no such folder or file; there are digits, text, random, a file of text, or a "
        "folder with MNIST's files (tools/get_mnist fetches them)",
        what);
  Data data{read_images(folder, "train"), read_images(folder, "t10k")};
  if (data.train.sample != data.test.sample)
    throw_runtime("{}: images of train are {}, those of t10k are {}", folder,
                  fmt::join(data.train.sample, "x"), fmt::join(data.test.sample, "x"));
  return data;
}

}  // namespace nn
