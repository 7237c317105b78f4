// SPDX-License-Identifier: BSD-3-Clause
// Each rank has a shard of the model.   c10d-run -n 2 5_fsdp [EPOCHS [DIRECTORY [BACKEND]]]
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "c10d/init.h"
#include "c10d/parallel/checkpoint.h"
#include "c10d/parallel/sampler.h"
#include "examples/tutorial/gathered.h"
#include "examples/tutorial/mlp.h"

namespace {

using namespace c10d::parallel;
using namespace tutorial;
constexpr std::int64_t kBatch = 32;
constexpr int kShards = 8;  // of each batch, whose gradients are added in a fixed order
constexpr auto kMode = ReduceMode::reproducible;
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
  auto group = c10d::init_process_group({.backend = argc > 3 ? argv[3] : ""});
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  const std::string directory = argc > 2 ? argv[2] : "checkpoint";
  const Digits train = read_digits("train"), test = read_digits("t10k");
  DistributedSampler sampler({.samples = train.size()});
  Fsdp fsdp(group, wrap(specs()), {.mode = kMode, .shards = kShards, .gradient_buffers = 2});
  const Gathered weights(fsdp);
  Snapshot snapshot;
  for (std::size_t l = 0; l < kModel.size(); ++l) {
    fsdp.assign(l, kModel[l].initial_weights());
    for (const TensorPart& part : fsdp.parts(l, "", fsdp.shard(l))) snapshot.parts.push_back(part);
  }
  load(group, directory, snapshot);  // changes nothing if there is no checkpoint

  for (int epoch = static_cast<int>(snapshot.epoch); epoch < epochs; ++epoch) {
    sampler.set_epoch(static_cast<std::uint64_t>(epoch));
    for (Samples batch = sampler.next(kBatch); !batch.empty(); batch = sampler.next(kBatch)) {
      const auto mine = parts_of(batch, shards_of(kShards, group.rank(), group.size()), kShards);
      forward_backward(
          weights, train, mine, [&](auto l) { return fsdp.next_gradient(l); },
          [&](auto l) { fsdp.gradient_done(l); });
      for (std::size_t l : {1u, 0u}) fsdp.reduce(l, static_cast<double>(batch.size()));
      fsdp.end_step();
      for (std::size_t l = 0; l < kModel.size(); ++l) sgd(fsdp.shard(l), fsdp.gradient(l));
    }
    const std::string result = evaluate(weights, test);
    fsdp.end_step();
    if (group.rank() == 0) std::printf("epoch %d: %s\n", epoch, result.c_str());
    snapshot.epoch = static_cast<std::uint64_t>(epoch) + 1;
    save(group, directory, snapshot);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
