// SPDX-License-Identifier: BSD-3-Clause
// What the funnel adds to an op, from the call to Backend::launch and back: arguments, capability,
// sequence, signature, recorder, deadline. The backend below does nothing.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>

#include "c10d/init.h"
#include "c10d/spi/backend.h"

namespace {

using namespace c10d;

class NoBackend final : public Backend {
 public:
  Support supports(const Query&) const override { return {}; }
  Work launch(const Call&) override { return {}; }
  std::unique_ptr<Backend> new_group(BackendContext, const std::vector<int>&) override {
    return std::make_unique<NoBackend>();
  }
  void abort() noexcept override {}
  void shutdown(Deadline) override {}
  std::string description() const override { return "none"; }
};

ProcessGroup& group() {
  static ProcessGroup instance = [] {
    register_backend("none", [](const BackendContext&) { return std::make_unique<NoBackend>(); });
    return init_process_group(
        {.backend = "none", .store = make_hash_store(), .rank = 0, .size = 1});
  }();
  return instance;
}

void funnel_all_reduce(benchmark::State& state) {
  std::array<float, 2> data{};
  ProcessGroup& instance = group();
  for (auto _ : state) instance.all_reduce(data);
}
BENCHMARK(funnel_all_reduce);

void funnel_barrier(benchmark::State& state) {
  ProcessGroup& instance = group();
  for (auto _ : state) instance.barrier();
}
BENCHMARK(funnel_barrier);

// A Work from its making to its completion and wait, as an async op has it.
void work_complete_and_wait(benchmark::State& state) {
  for (auto _ : state) {
    const WorkSource source;
    const Work work = source.work();
    source.complete();
    work.wait();
  }
}
BENCHMARK(work_complete_and_wait);

}  // namespace
