// SPDX-License-Identifier: BSD-3-Clause
// What the trainers say of memory of a GPU, which their code on the host cannot read: on the
// stand-in for the driver, where to touch it is a SIGSEGV.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "c10d/cuda.h"
#include "c10d/parallel/compression.h"
#include "c10d/parallel/fsdp.h"
#include "c10d/parallel/reproducible.h"
#include "tests/contract/ranks.h"
#include "tests/parallel/even_units.h"
#include "tests/parallel/refused_argument.h"
#include "tests/parallel/toy_stage.h"

namespace c10d::parallel { namespace {

using testing::AllOf;
using testing::HasSubstr;

void expect_refused(const std::string& who, const std::function<void()>& call) {
  EXPECT_THAT(refusal_of(call),
              AllOf(HasSubstr(who), HasSubstr("memory of cuda:1"), HasSubstr("copy it")));
}

void expect_usable_after(const std::function<void(ProcessGroup&)>& body) {
  contract::run_ranks("native", 1, [&](ProcessGroup& group) {
    body(group);
    EXPECT_EQ(group.failure(), nullptr);
    contract::expect_usable(group);
  });
}

TEST(Gpu, SumsOnTheHostRefuseItsMemory) {
  const auto gpu = cuda::device_allocate<float>(4, 1);
  const View on_gpu = gpu;
  std::vector<float> host(4);
  expect_refused("add_to", [&] { add_to(host, on_gpu); });
  ShardAccumulator sums(1, {0, 1}, 4);
  expect_refused("ShardAccumulator", [&] { sums.add(on_gpu); });
  EXPECT_FALSE(sums.complete());
}

TEST(Gpu, TreeSumRefusesItsMemoryBeforeAnyRankIsAsked) {
  const auto gpu = cuda::device_allocate<float>(4, 1);
  const auto bytes = cuda::device_allocate<std::uint8_t>(64, 1);
  std::vector<float> host(4);
  const ConstView own[] = {host}, on_gpu[] = {gpu};
  const std::size_t counts[] = {4};
  expect_usable_after([&](ProcessGroup& group) {
    TreeSum tree(group, 1);
    EXPECT_THAT(refusal_of([&] { tree.all_reduce(gpu, on_gpu); }),
                AllOf(HasSubstr("memory of cuda:1"), HasSubstr("no backend for GPUs"),
                      HasSubstr("nccl"), HasSubstr("copy it")));
    expect_refused("TreeSum::all_reduce", [&] { tree.all_reduce(gpu, own); });
    expect_refused("TreeSum::all_reduce", [&] { tree.all_reduce(host, on_gpu); });
    expect_refused("TreeSum::all_reduce", [&] { tree.all_reduce(host, own, 1, bytes); });
    expect_refused("TreeSum::reduce_scatter", [&] { tree.reduce_scatter(gpu, own, counts); });
    expect_refused("TreeSum::reduce_scatter", [&] { tree.reduce_scatter(host, on_gpu, counts); });
  });
}

TEST(Gpu, HooksRefuseABucketInItsMemory) {
  const auto gpu = cuda::device_allocate<float>(4, 1);
  const auto doubles = cuda::device_allocate<double>(4, 1);
  const ParamSpec spec{.name = "w", .shape = {2, 2}};
  const BucketParam param{0, &spec, 0};
  PowerSgd power;
  expect_usable_after([&](ProcessGroup& group) {
    for (const View& gradient : {gpu.view(), doubles.view()}) {
      const Bucket bucket{.gradient = gradient, .params = {&param, 1}, .samples = 1};
      expect_refused("Bucket", [&] { reduce_as_bf16(group, bucket); });
      expect_refused("Bucket", [&] { reduce_as_f16(group, bucket); });
      expect_refused("Bucket", [&] { power(group, bucket); });
    }
  });
}

// A Buffer becomes a span by its data(), which refuses.
TEST(Gpu, FsdpTakesNoSpanOfIt) {
  const auto gpu = cuda::device_allocate<float>(3, 1);
  expect_usable_after([&](ProcessGroup& group) {
    Fsdp fsdp(group, even_units({3}));
    expect_refused("this Buffer", [&] { fsdp.assign(0, gpu); });
    expect_refused("this Buffer", [&] { fsdp.parts(0, "adam.m.", gpu); });
  });
}

// The first stage; only its output, or its tied gradient, lies on the GPU.
struct GpuStage : ToyStage {
  explicit GpuStage(bool is_tied_) : ToyStage(0, {{0, 1}}, 4), is_tied(is_tied_) {}
  std::vector<Activation> forward(int i, std::span<const Activation> inputs) override {
    auto outputs = ToyStage::forward(i, inputs);
    if (!is_tied) outputs[0] = {{4}, gpu.view(), {}};
    return outputs;
  }
  View tied_gradient(std::string_view) override { return gpu; }

  const bool is_tied;
  Buffer<float> gpu = cuda::device_allocate<float>(4, 1);
};

// On the rank of that stage; the other one hears of it.
TEST(Gpu, APipelineRefusesActivationsAndTiedGradientsInItsMemory) {
  for (const bool is_tied : {false, true})
    contract::run_ranks("native", 2, [&](ProcessGroup& group) {
      GpuStage first(is_tied);
      ToyStage second(1, {{0, 1}}, 4);
      PipelineOptions options;
      options.schedule = make_schedule("gpipe", 2, 1);
      if (is_tied) options.tied = {{"head", {0, 1}}};
      Stage* const own = group.rank() == 0 ? static_cast<Stage*>(&first) : &second;
      Pipeline pipeline(group, {{group.rank(), own}}, options);
      const auto step = [&] { pipeline.step(); };
      if (group.rank() == 0)
        expect_refused(is_tied ? "the gradient of head in stage 0" : "returned", step);
      else
        EXPECT_THAT(contract::failure_of(step).message, HasSubstr("memory of cuda:1"));
    });
}

}}  // namespace c10d::parallel
