// SPDX-License-Identifier: BSD-3-Clause
// Ops on memory of GPUs in the funnel: which backend they go to, what is refused, and when they
// count as finished. A backend of the test enqueues copies; the driver is the stand-in.
#include "src/device/gpu.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "c10d/capability.h"
#include "c10d/cuda.h"
#include "c10d/custom_reduce.h"
#include "c10d/init.h"
#include "c10d/rows.h"
#include "c10d/spi/backend.h"
#include "tests/unit/device/message_of.h"
#include "tests/unit/device/spin.h"

namespace c10d { inline namespace v0 { namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Copies the input of an all_reduce to its output: right for one rank.
class CopyBackend final : public Backend {
 public:
  explicit CopyBackend(BackendContext context) : context_(std::move(context)) {}
  ~CopyBackend() override { join(); }

  Support supports(const Query& query) const override {
    if (query.device == DeviceType::cpu) return {.ok = false, .reason = "for GPUs only"};
    if (query.captured) return {.ok = false, .reason = "it knows no graphs"};
    if (query.op == OpKind::all_reduce || query.op == OpKind::barrier) return {};
    return {.ok = false, .reason = "it copies, and nothing else"};
  }
  Device device() const noexcept override { return context_.device; }
  Work launch(const Call& call) override {
    if (const auto* op = std::get_if<AllReduce>(&call.op))
      if (op->output.data != op->input.data) cuda::copy(op->output, op->input, call.stream);
    auto event = std::make_unique<cuda::Event>(device().index);
    event->record(call.stream);
    WorkSource source;
    source.set_order([raw = event.get()](CudaStream stream) { raw->wait(stream); });
    std::thread watcher([this, source, event = event.get(), async = call.async,
                         kind = kind_of(call.op), sequence = call.sequence, record = call.record] {
      event->synchronize();
      async ? static_cast<void>(source.complete())
            : context_.control->finished(kind, sequence, record, nullptr);
    });
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
      watchers_.push_back(std::move(watcher));
    }
    return call.async ? source.work() : Work();
  }
  std::unique_ptr<Backend> new_group(BackendContext context, const std::vector<int>&) override {
    return std::make_unique<CopyBackend>(std::move(context));
  }
  Allocation allocate(std::size_t bytes, Device device, Deadline) override {
    return cuda::device_allocate(bytes, device.index);
  }
  void abort() noexcept override {}
  void shutdown(Deadline) override { join(); }
  std::string description() const override { return "copies"; }

 private:
  void join() {
    const std::lock_guard lock(mutex_);
    for (std::thread& watcher : watchers_) watcher.join();
    watchers_.clear();
  }

  const BackendContext context_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<cuda::Event>> events_;
  std::vector<std::thread> watchers_;
};

ProcessGroup one_rank(const std::string& backend = "cuda:copy", std::optional<int> device = 1) {
  static const bool registered = [] {
    register_backend("copy", [](BackendContext context) {
      return std::make_unique<CopyBackend>(std::move(context));
    });
    return true;
  }();
  EXPECT_TRUE(registered);
  return init_process_group({.backend = backend,
                             .store = make_hash_store(std::chrono::seconds(20)),
                             .rank = 0,
                             .size = 1,
                             .device = device,
                             .timeout = std::chrono::seconds(20)});
}

TEST(GroupOnGpu, RoutesEachOpByItsMemory) {
  const ProcessGroup group = one_rank();
  EXPECT_EQ(group.device(), cuda_device(1));
  EXPECT_EQ(group.backend(), "cuda:copy");
  EXPECT_EQ(group.description().find("cuda: copies; cpu: "), 0u) << group.description();
  EXPECT_TRUE(group.supports({.op = OpKind::all_reduce, .device = DeviceType::cuda}));
  EXPECT_FALSE(group.supports({.op = OpKind::broadcast, .device = DeviceType::cuda}));
  EXPECT_TRUE(group.supports({.op = OpKind::broadcast}));

  std::vector<float> numbers = {1, 2, 3}, host_output(3);
  group.all_reduce(host_output, numbers);
  EXPECT_EQ(host_output, numbers);

  const cuda::Stream stream(1);
  const auto input = cuda::device_allocate<float>(3, 1);
  const auto output = group.allocate<float>(3, group.device());
  EXPECT_EQ(output.device(), cuda_device(1));
  cuda::copy(input, numbers, stream);
  group.all_reduce(output, input, ReduceOp::sum, {.stream = stream});
  std::vector<float> back(3);
  cuda::copy(back, output, stream);
  stream.synchronize();
  EXPECT_EQ(back, numbers);
  EXPECT_THAT(message_of([&] { group.broadcast(output, 0); }),
              testing::AllOf(HasSubstr("broadcast(f32 x 3, root 0, cuda)"),
                             HasSubstr("it copies, and nothing else")));
  EXPECT_EQ(group.failure(), nullptr);
}

TEST(GroupOnGpu, TakesTheGpuOfItsRankUnlessTold) {
  EXPECT_EQ(one_rank("cuda:copy", std::nullopt).device(), cuda_device(0));
  EXPECT_EQ(one_rank("cuda:copy,cpu:native", 7).device(), cuda_device(7));
  EXPECT_EQ(one_rank("native", 7).device(), Device{});
  EXPECT_THAT(message_of([] { one_rank("cuda:copy", 8); }),
              HasSubstr("cuda:8 is not there: this process has 8 GPUs"));
  EXPECT_THAT(message_of([] { one_rank("cuda:copy", -1); }), HasSubstr("InitOptions::device"));
  EXPECT_THAT(message_of([] { one_rank("cuda:copy,gpu:native"); }),
              HasSubstr("write NAME, or cuda:NAME,cpu:NAME"));
  EXPECT_THAT(message_of([] { one_rank("cuda:copy,cuda:copy"); }),
              HasSubstr("write NAME, or cuda:NAME,cpu:NAME"));
  EXPECT_THAT(message_of([] { one_rank("cuda:nobody"); }), HasSubstr("'nobody' is not available"));
}

TEST(GroupOnGpu, ASubgroupHasTheSameGpu) {
  const ProcessGroup group = one_rank("cuda:copy", 3);
  const ProcessGroup part = group.new_group({0});
  EXPECT_EQ(part.device(), cuda_device(3));
  const auto memory = cuda::device_allocate<float>(3, 3);
  part.all_reduce(memory);
  part.barrier();
}

TEST(GroupOnGpu, ReturnsWhenTheOpIsEnqueuedAndCountsItWhenTheGpuIsDone) {
  const ProcessGroup group = one_rank();
  const auto memory = cuda::device_allocate<float>(3, 1);
  const cuda::Stream stream(1);
  Spin spin(1);
  spin.hold(stream);
  group.all_reduce(memory, ReduceOp::sum, {.stream = stream});  // it would hang otherwise
  // A barrier waits for what this rank has begun.
  std::atomic<bool> let_go = false;
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(100));
    let_go = true;
    spin.let_go();
  });
  group.barrier();
  EXPECT_TRUE(let_go);
  later.join();
}

TEST(GroupOnGpu, ABarrierWithAStreamIsAnOpOnIt) {
  const ProcessGroup group = one_rank();
  const cuda::Stream stream(1);
  Spin spin(1);
  spin.hold(stream);
  group.barrier({.stream = stream});
  spin.let_go();
  stream.synchronize();
}

TEST(GroupOnGpu, AsyncOpsEndWhenTheGpuIsDone) {
  const ProcessGroup group = one_rank();
  const auto memory = cuda::device_allocate<float>(3, 1);
  const cuda::Stream stream(1), follower(1);
  const cuda::Event behind(1);
  Spin spin(1);
  spin.hold(stream);
  const Work work = group.async().all_reduce(memory, ReduceOp::sum, {.stream = stream});
  work.synchronize_stream(follower);
  behind.record(follower);
  EXPECT_FALSE(work.done());
  EXPECT_FALSE(behind.done());
  EXPECT_THROW(work.wait(milliseconds(1)), DistTimeoutError);
  spin.let_go();
  work.wait();
  behind.synchronize();
  EXPECT_EQ(work.failure(), nullptr);
}

TEST(GroupOnGpu, ShutdownWaitsForWhatIsEnqueued) {
  const ProcessGroup group = one_rank();
  const auto memory = cuda::device_allocate<float>(3, 1);
  const cuda::Stream stream(1);
  Spin spin(1);
  spin.hold(stream);
  group.all_reduce(memory, ReduceOp::sum, {.stream = stream});
  std::atomic<bool> let_go = false;
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(100));
    let_go = true;
    spin.let_go();
  });
  group.shutdown();
  EXPECT_TRUE(let_go);
  later.join();
}

TEST(GroupOnGpu, RefusesWhatDoesNotBelongToItsGpu) {
  const ProcessGroup group = one_rank();
  const auto memory = cuda::device_allocate<float>(3, 1),
             other = cuda::device_allocate<float>(3, 2);
  const cuda::Stream stream(1), stream_of_other(2);
  std::vector<float> host(3);
  const auto all_reduce = [&](View view, CudaStream on) {
    return message_of([&] { group.all_reduce(view, ReduceOp::sum, {.stream = on}); });
  };
  EXPECT_EQ(all_reduce(other, nullptr),
            "all_reduce: output is on cuda:2, the GPU of this group is cuda:1");
  EXPECT_EQ(all_reduce(View(host.data(), 3, DType::f32, cuda_device(1)), nullptr),
            "all_reduce: output is no memory of a GPU, and the view says cuda:1");
  EXPECT_EQ(all_reduce(View(other.device_data(), 3, DType::f32, cuda_device(1)), nullptr),
            "all_reduce: output is memory of cuda:2, and the view says cuda:1");
  EXPECT_THAT(all_reduce(memory, stream_of_other), HasSubstr("a stream of another GPU"));
  EXPECT_THAT(all_reduce(host, stream), HasSubstr("here is none"));
  EXPECT_THAT(message_of([&] { group.all_reduce(memory, host); }),
              HasSubstr("output is on cuda:1, input is on the CPU"));
  EXPECT_THAT(message_of([&] { group.allocate<float>(3, cuda_device(2)); }),
              HasSubstr("the GPU of this group is cuda:1"));
  EXPECT_THAT(message_of([&] { one_rank("native").allocate<float>(3, cuda_device(0)); }),
              HasSubstr("this group has no GPU"));
  EXPECT_THAT(message_of([&] { one_rank("native").all_reduce(memory); }),
              HasSubstr("native cannot do all_reduce(sum, f32 x 3, cuda)"));
  EXPECT_THAT(message_of([&] { group.all_reduce(View(memory.device_data(), 3)); }),
              HasSubstr("output is memory of cuda:1, and the view says CPU"));
  EXPECT_THAT(message_of([&] { static_cast<void>(memory.view().rows(2, 1, 2)); }),
              HasSubstr("the host, which cannot read memory of cuda:1"));
  const Rows rows{memory, 2, 1, 2};  // by hand
  const ConstRows const_rows = rows;
  const std::function<void()> calls[] = {
      [&] { broadcast(group, rows, 0); },
      [&] { all_gather(group, host, const_rows); },
      [&] { all_gather(group, rows, const_rows); },
      [&] { send(group, const_rows, 0); },
      [&] { recv(group, rows, 0); },
  };
  for (const auto& call : calls)
    EXPECT_THAT(message_of(call), HasSubstr("the host, which cannot read memory of cuda:1"));
  EXPECT_THAT(message_of([&] { c10d::all_reduce(group, memory, std::plus<float>()); }),
              HasSubstr("this Buffer is memory of cuda:1"));
  const driver::Api& api = driver_api();
  driver::Graph graph = nullptr;
  check_driver(api.stream_begin_capture(stream, driver::kCaptureThreadLocal), "begin");
  EXPECT_THAT(all_reduce(memory, stream), HasSubstr("it knows no graphs"));
  check_driver(api.stream_end_capture(stream, &graph), "end");
  check_driver(api.graph_destroy(graph), "the end of a graph");
  EXPECT_EQ(group.failure(), nullptr);
  group.all_reduce(memory);
}

}}}  // namespace c10d::v0
