// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "c10d/cuda.h"

struct CUgraphExec_st;  // of CUDA

namespace c10d::bench {

// With --device cuda: where a rank is. Its buffers lie on this GPU, and all its ops and copies are
// on this stream.
struct GpuSeat {
  // C10D_DEVICE, or the local rank modulo the number of GPUs.
  explicit GpuSeat(int local_rank);
  Device device;
  cuda::Stream stream;
};

// Working sets that no L2 holds are at least so large: four times the largest L2 of this process's
// GPUs.
std::uint64_t beyond_l2_bytes();

// Throws InvalidArgument, which says what is missing and what to do, where there is no GPU for
// --device cuda.
void require_a_gpu();
// Throws InvalidArgument where the GPUs of this process have less memory than `ranks` ranks have
// buffers on them, and one rank copies in.
void refuse_beyond_gpu_memory(std::uint64_t bytes_per_rank, std::uint64_t copied_bytes, int ranks);

// Time between two points of a stream, as the GPU takes it.
class GpuTimer {
 public:
  explicit GpuTimer(const GpuSeat& seat);
  void start() const { start_.record(stream_); }
  // Waits for all that is on the stream. Nanoseconds since start().
  std::int64_t stop() const;

 private:
  CudaStream stream_;
  cuda::Event start_, stop_;
};

// Ops that a CUDA graph has captured from the stream of a seat, to be replayed there.
class GpuGraph {
 public:
  // `enqueue` puts the ops on the stream, and none of them runs. Throws what it throws, and
  // DistBackendError with the driver's words.
  GpuGraph(const GpuSeat& seat, const std::function<void()>& enqueue);
  // Puts all of them on the stream once more. Allocates nothing.
  void launch() const;

 private:
  struct Destroy {
    void operator()(CUgraphExec_st* graph) const noexcept;
  };
  CudaStream stream_;
  std::unique_ptr<CUgraphExec_st, Destroy> graph_;
};

// Copies on one GPU, which bound what collectives on it can do.
class GpuCopier {
 public:
  explicit GpuCopier(const GpuSeat& seat) : seat_(seat), timer_(seat) {}
  // Microseconds of one copy of so many bytes, the median of batches; with `beyond_l2` between
  // buffers that are together beyond_l2_bytes() at least.
  double microseconds(std::uint64_t bytes, bool beyond_l2);
  // What that allocates.
  static std::uint64_t memory_of(std::uint64_t bytes, bool beyond_l2);

 private:
  const GpuSeat& seat_;
  GpuTimer timer_;
  Allocation memory_;
};

}  // namespace c10d::bench
