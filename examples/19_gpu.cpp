// SPDX-License-Identifier: BSD-3-Clause
// Sums on GPUs, one for each rank, without a header or a library of CUDA.   c10d-run -n 2 19_gpu
#include <cstdio>
#include <exception>
#include <vector>

#include "c10d/cuda.h"
#include "c10d/init.h"

int main() try {
  if (c10d::cuda::device_count() == 0) {
    std::printf("nothing to do: %s\n", c10d::cuda::why_no_gpu().c_str());
    return 0;
  }
  auto group = c10d::init_process_group({.backend = "nccl"});
  const int gpu = group.device().index;  // the local rank, unless C10D_DEVICE says otherwise
  const c10d::cuda::Stream stream(gpu);
  std::vector<float> host(1000, static_cast<float>(group.rank() + 1));

  // All of it is enqueued, and runs in this order: the call of all_reduce does not wait.
  const auto values = c10d::cuda::device_allocate<float>(host.size(), gpu);
  c10d::cuda::copy(values, host, stream);
  group.all_reduce(values, c10d::ReduceOp::sum, {.stream = stream});
  c10d::cuda::copy(host, values, stream);
  stream.synchronize();
  group.barrier();  // throws if an op before has failed: the stream does not tell

  // Host memory goes through another backend of the same group.
  std::vector<int> ranks(1, 1);
  group.all_reduce(ranks);
  std::printf("rank %d of %d on cuda:%d: the sum is %g\n", group.rank(), ranks[0], gpu, host[0]);
  const int expected = group.size() * (group.size() + 1) / 2;
  return host[0] == static_cast<float>(expected) && ranks[0] == group.size() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
