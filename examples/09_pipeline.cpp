// SPDX-License-Identifier: BSD-3-Clause
// A model in stages, one per rank, trained by a pipeline.   c10d-run -n 4 09_pipeline zb-h1
// With a third argument F, I and W take that many ms each, and it prints the simulated and the
// measured bubble.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "c10d/init.h"
#include "c10d/parallel/pipeline.h"

namespace {

using namespace c10d::parallel;
using Seconds = std::chrono::duration<double>;
constexpr int kMicroBatches = 8;

// y = w x. The product of all w learns to be 3.
struct Scale : Stage {
  bool first = false, last = false;
  float w = 1, gradient = 0, error = 0, x[kMicroBatches] = {}, dy[kMicroBatches] = {};

  static float get(const Activation& from) { return *static_cast<const float*>(from.data.data); }
  static std::vector<Activation> put(float value) {
    Activation activation = make_activation({1});
    *static_cast<float*>(activation.data.data) = value;
    return {activation};
  }
  std::vector<Activation> forward(int i, std::span<const Activation> inputs) override {
    const float sample = 1 + 0.1f * static_cast<float>(i);
    x[i] = first ? sample : get(inputs[0]);
    dy[i] = w * x[i] - 3 * sample;  // for the last one
    return last ? std::vector<Activation>{} : put(w * x[i]);
  }
  std::vector<Activation> backward_input(int i, std::span<const Activation> gradients) override {
    if (!last) dy[i] = get(gradients[0]);
    return first ? std::vector<Activation>{} : put(w * dy[i]);
  }
  void backward_weight(int i) override {
    gradient += dy[i] * x[i];
    error = std::fmax(error, std::fabs(dy[i]));
  }
};

}  // namespace

int main(int argc, char** argv) try {
  auto group = c10d::init_process_group();
  Scale stage;
  stage.first = group.rank() == 0;
  stage.last = group.rank() == group.size() - 1;

  PipelineOptions options;
  options.schedule = make_schedule(argc > 1 ? argv[1] : "1f1b", group.size(), kMicroBatches);
  double busy = 0;
  const auto cost = std::chrono::milliseconds(argc > 2 ? std::atoi(argv[2]) : 0);
  options.on_begin = [&](const Action& action) {
    if (cost.count() == 0 || action.kind > ActionKind::backward_weight) return;
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(action.kind == ActionKind::backward ? 2 * cost : cost);
    busy += Seconds(std::chrono::steady_clock::now() - begin).count();
  };
  Pipeline pipeline(group, {{group.rank(), &stage}}, options);
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < (cost.count() > 0 ? 5 : 200); ++step) {
    stage.gradient = stage.error = 0;
    pipeline.step();
    stage.w -= 0.02f / static_cast<float>(group.size()) * stage.gradient;
  }
  const double all = Seconds(std::chrono::steady_clock::now() - begin).count();
  busy = group.all_reduce(busy, c10d::ReduceOp::avg);
  if (stage.last && cost.count() > 0)
    std::printf("%smeasured bubble %.1f %%\n", to_text(simulate(options.schedule)).c_str(),
                100 * (1 - busy / all));
  if (stage.last && cost.count() == 0)
    std::printf("after 200 steps the product of all w is wrong by less than %.2g\n",
                static_cast<double>(stage.error));
  return cost.count() > 0 || stage.error < 0.01f ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
