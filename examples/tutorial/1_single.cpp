// SPDX-License-Identifier: BSD-3-Clause
// Learns to read handwritten digits.   1_single [EPOCHS]
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "c10d/parallel/sampler.h"
#include "examples/tutorial/mlp.h"

namespace {

using namespace c10d::parallel;
using namespace tutorial;
constexpr std::int64_t kBatch = 32;
constexpr float kRate = 0.2f;

void sgd(std::span<float> weights, std::span<const float> gradient) {
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= kRate * gradient[i];
}

// Loss and accuracy on digits that were not trained on, and a hash of all weights.
std::string evaluate(const auto& weights, const Digits& test) {
  Matrix x = test.images;
  std::uint64_t digest = 0;
  for (std::size_t l = 0; l < kModel.size(); ++l) {
    const auto& w = weights[l];
    x = kModel[l].forward(w, x);
    digest = hash(w, digest);
  }
  const auto [loss, right] = test.score(x);
  char line[80];
  std::snprintf(line, sizeof line, "test loss %.4f, accuracy %.1f %%, weights %016llx", loss,
                100 * right, static_cast<unsigned long long>(digest));
  return line;
}

}  // namespace

int main(int argc, char** argv) try {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  const Digits train = read_digits("train"), test = read_digits("t10k");
  DistributedSampler sampler({.samples = train.size()});
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<float>> gradients;
  for (const Layer& layer : kModel) {
    weights.push_back(layer.initial_weights());
    gradients.emplace_back(layer.size());
  }

  for (int epoch = 0; epoch < epochs; ++epoch) {
    sampler.set_epoch(static_cast<std::uint64_t>(epoch));
    for (Samples batch = sampler.next(kBatch); !batch.empty(); batch = sampler.next(kBatch)) {
      forward_backward(weights, train, {batch}, [&](auto l) { return std::span(gradients[l]); });
      for (std::size_t l = 0; l < kModel.size(); ++l) {
        for (float& g : gradients[l]) g /= static_cast<float>(batch.size());
        sgd(weights[l], gradients[l]);
      }
    }
    const std::string result = evaluate(weights, test);
    std::printf("epoch %d: %s\n", epoch, result.c_str());
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
