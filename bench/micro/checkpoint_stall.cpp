// SPDX-License-Identifier: BSD-3-Clause
// What a checkpoint costs the training: `c10d-run --nproc_per_node=2 checkpoint_stall DIRECTORY
// [MiB per rank]`. Medians over checkpoints, of the slowest rank:
//   save        save(): training waits for the disk
//   call        AsyncSaver::save(): for the agreement and the copy
//   slower      what the steps until it is published take longer than undisturbed ones: the
//               writer's share of cores and memory
//   kept        the call, if its result is kept during the next step: for the agreement
//   slower      the same after it: the copy's share too
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "c10d/init.h"
#include "c10d/parallel/checkpoint.h"

namespace {

using namespace c10d::parallel;

constexpr int kCheckpoints = 9, kTensors = 180;
constexpr int kStepsBetween = 20;

class Stopwatch {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double slowest(c10d::ProcessGroup& group, double ms) {
  group.all_reduce(std::span(&ms, 1), c10d::ReduceOp::max);
  return ms;
}

// A step of training: arithmetic in cache, an all_reduce as of gradients, and a small one as of the
// loss or of poll().
double step(c10d::ProcessGroup& group, std::vector<float>& cache, std::vector<float>& gradients,
            const std::function<void()>& small) {
  const Stopwatch watch;
  for (int round = 0; round < 3000; ++round)
    for (float& value : cache) value = value * 0.999f + 0.5f;
  group.all_reduce(gradients, c10d::ReduceOp::avg);
  small();
  return watch.ms();
}

void measure(c10d::ProcessGroup& group, const std::string& directory, std::size_t mib) {
  const auto rank = static_cast<std::size_t>(group.rank());
  const auto size = static_cast<std::size_t>(group.size());
  const std::size_t part = (mib << 20) / sizeof(float) / kTensors;
  std::vector<float> state(part * kTensors, 1), cache(8192, 1), gradients(1 << 18, 1);
  Snapshot snapshot;
  for (std::size_t i = 0; i < kTensors; ++i)
    snapshot.parts.push_back({{.name = "model.layer" + std::to_string(i) + ".weight",
                               .shape = {static_cast<std::int64_t>(part * size)}},
                              rank * part,
                              std::as_writable_bytes(std::span(state).subspan(i * part, part))});

  std::vector<double> saves, calls, slower, kept_calls, kept_slower, undisturbed;
  std::int32_t loss = 0;
  const auto usual_step = [&] {
    return step(group, cache, gradients, [&] { group.all_reduce(std::span(&loss, 1)); });
  };
  for (int i = 0; i < kCheckpoints; ++i) {
    group.barrier();
    const Stopwatch watch;
    save(group, directory, snapshot);
    saves.push_back(slowest(group, watch.ms()));
    for (int k = 0; k < kStepsBetween; ++k) undisturbed.push_back(usual_step());
  }
  const double usual = median(undisturbed);
  AsyncSaver saver(group, directory);
  // The time of the call and by how much it slows what follows.
  const auto checkpoint = [&](bool keeps) {
    group.barrier();
    const Stopwatch watch;
    double call = 0, late = 0;
    {
      const auto copying = saver.save(snapshot);
      if (!keeps) copying.wait();
      call = watch.ms();
      late = usual_step() - usual;
    }
    for (bool is_done = false; !is_done;)
      late += step(group, cache, gradients, [&] { is_done = saver.poll(); }) - usual;
    for (int k = 0; k < kStepsBetween; ++k) usual_step();
    return std::pair(slowest(group, call), slowest(group, late));
  };
  for (int i = 0; i < kCheckpoints; ++i) {
    const auto [call, late] = checkpoint(false);
    calls.push_back(call);
    slower.push_back(late);
  }
  for (int i = 0; i < kCheckpoints; ++i) {
    const auto [call, late] = checkpoint(true);
    kept_calls.push_back(call);
    kept_slower.push_back(late);
  }
  if (rank != 0) return;
  const double whole = median(saves);
  std::printf("%zu ranks x %zu MiB, step %.2f ms\n", size, mib, usual);
  const auto row = [&](const char* name, double ms) {
    std::printf("%-8s %8.2f ms %6.1f %%\n", name, ms, 100 * ms / whole);
  };
  row("save", whole);
  row("call", median(calls));
  row("(first)", calls.front());
  row("slower", median(slower));
  row("kept", median(kept_calls));
  row("slower", median(kept_slower));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "checkpoint_stall DIRECTORY [MiB per rank]\n");
    return 2;
  }
  c10d::ProcessGroup group = c10d::init_process_group({.backend = "native"});
  measure(group, argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 64);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "checkpoint_stall: %s\n", error.what());
  return 1;
}
