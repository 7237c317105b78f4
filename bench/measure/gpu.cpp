// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>
#include <vector>

#include "bench/model/stats.h"
#include "bench/text/format.h"
#include "c10d/env.h"
#include "c10d/error.h"
#include "src/device/gpu.h"

namespace c10d::bench {
namespace {

int device_of(int local_rank) {
  constexpr int kAny = 1023;  // whether there is such a GPU is asked later
  if (const auto chosen = env_integer("C10D_DEVICE", 0, kAny)) return static_cast<int>(*chosen);
  return local_rank % std::max(1, cuda::device_count());
}

// Source and target, as often as the L2 holds no byte.
std::uint64_t pairs_of(std::uint64_t bytes, bool beyond_l2) {
  return beyond_l2 ? std::max<std::uint64_t>(2, beyond_l2_bytes() / (2 * bytes) + 1) : 1;
}

constexpr std::uint64_t kAlignment = 256;
std::uint64_t stride_of(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

GpuSeat::GpuSeat(int local_rank)
    : device(cuda_device(device_of(local_rank))), stream(device.index) {}

std::uint64_t beyond_l2_bytes() {
  static const std::uint64_t bytes = [] {
    std::uint64_t most = 0;
    for (int device = 0; device < cuda::device_count(); ++device)
      most = std::max<std::uint64_t>(most, cuda::device_info(device).l2_bytes);
    return 4 * most;
  }();
  return bytes;
}

void require_a_gpu() {
  if (cuda::device_count() > 0) return;
  throw InvalidArgument(
      fmt::format("--device cuda: this process has no GPU: {}; c10d-info says what it looked for, "
                  "and --device cpu measures without one",
                  cuda::why_no_gpu()));
}

void refuse_beyond_gpu_memory(std::uint64_t bytes_per_rank, std::uint64_t copied_bytes, int ranks) {
  const int gpus = cuda::device_count();
  const auto on_one = static_cast<std::uint64_t>((ranks + gpus - 1) / gpus);
  for (int device = 0; device < gpus; ++device) {
    const cuda::DeviceInfo info = cuda::device_info(device);
    const std::uint64_t bytes = bytes_per_rank * on_one + copied_bytes;
    if (bytes > info.memory_bytes)
      throw InvalidArgument(fmt::format(
          "{} rank{} x {} of buffers and {} for plain copies: {} of memory, more than the {} of "
          "cuda:{} ({}); lower --max",
          on_one, on_one == 1 ? "" : "s", bytes_text(bytes_per_rank), bytes_text(copied_bytes),
          bytes_text(bytes), bytes_text(info.memory_bytes >> 20 << 20), device, info.name));
  }
}

GpuTimer::GpuTimer(const GpuSeat& seat)
    : stream_(seat.stream),
      start_(seat.device.index, cuda::Event::Timing::on),
      stop_(seat.device.index, cuda::Event::Timing::on) {}

std::int64_t GpuTimer::stop() const {
  stop_.record(stream_);
  stop_.synchronize();
  return std::llround(static_cast<double>(stop_.milliseconds_since(start_)) * 1e6);
}

GpuGraph::GpuGraph(const GpuSeat& seat, const std::function<void()>& enqueue)
    : stream_(seat.stream) {
  const OnGpu here(seat.device.index);
  const driver::Api& api = driver_api();
  // Of this thread alone: those of a backend ask for their events meanwhile.
  check_driver(api.stream_begin_capture(stream_, driver::kCaptureThreadLocal),
               "cuStreamBeginCapture");
  std::exception_ptr failure;
  try {
    enqueue();
  } catch (...) {
    failure = std::current_exception();
  }
  driver::Graph captured = nullptr;
  const driver::Result ended = api.stream_end_capture(stream_, &captured);
  driver::GraphExec graph = nullptr;
  driver::Result instantiated = driver::kSuccess;
  if (captured != nullptr) {
    if (!failure) instantiated = api.graph_instantiate(&graph, captured, 0);
    api.graph_destroy(captured);
  }
  graph_.reset(graph);
  if (failure) std::rethrow_exception(failure);
  check_driver(ended, "cuStreamEndCapture");
  check_driver(instantiated, "cuGraphInstantiate");
}

void GpuGraph::launch() const {
  check_driver(driver_api().graph_launch(graph_.get(), stream_), "cuGraphLaunch");
}

void GpuGraph::Destroy::operator()(CUgraphExec_st* graph) const noexcept {
  driver_api().graph_exec_destroy(graph);
}

std::uint64_t GpuCopier::memory_of(std::uint64_t bytes, bool beyond_l2) {
  return bytes == 0 ? 0 : 2 * stride_of(bytes) * pairs_of(bytes, beyond_l2);
}

double GpuCopier::microseconds(std::uint64_t bytes, bool beyond_l2) {
  constexpr int kBatches = 20;
  constexpr std::uint64_t kLong = std::uint64_t{64} << 20;  // enough for a time of its own
  const int batch = bytes >= kLong ? 1 : 20;
  const std::uint64_t pairs = pairs_of(bytes, beyond_l2), stride = stride_of(bytes);
  if (memory_.bytes < memory_of(bytes, beyond_l2)) {
    memory_ = {};  // before there is more
    memory_ = cuda::device_allocate(memory_of(bytes, beyond_l2), seat_.device.index);
    cuda::fill({memory_.data, memory_.bytes, DType::u8, seat_.device}, 0, seat_.stream);
  }
  std::uint64_t pair = 0;
  const auto copy = [&] {
    std::byte* const from = static_cast<std::byte*>(memory_.data) + 2 * stride * pair;
    cuda::copy({from + stride, bytes, DType::u8, seat_.device},
               {from, bytes, DType::u8, seat_.device}, seat_.stream);
    pair = (pair + 1) % pairs;
  };
  copy();
  std::vector<double> times;
  for (int i = 0; i < kBatches; ++i) {
    timer_.start();
    for (int c = 0; c < batch; ++c) copy();
    times.push_back(static_cast<double>(timer_.stop()) * 1e-3 / batch);
  }
  return median(std::move(times));
}

}  // namespace c10d::bench
