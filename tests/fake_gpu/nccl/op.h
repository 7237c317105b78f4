// SPDX-License-Identifier: BSD-3-Clause
// What a communicator does on a stream.
#pragma once

#include "tests/fake_gpu/nccl/comm.h"

namespace fake_nccl {

enum class Kind {
  all_reduce,
  reduce,
  broadcast,
  reduce_scatter,
  all_gather,
  all_to_all,
  gather,
  scatter,
  send,
  recv,
};

// One call. `count` is the one that NCCL is given.
struct Task {
  Kind kind;
  const char* function;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  nccl::DataType dtype = nccl::kInt8;
  nccl::RedOp op = nccl::kSum;
  int root = 0;  // or the peer
  Factor factor = 0;
  const void* factor_at = nullptr;  // where the GPU finds the factor
  cu::Stream stream = nullptr;
  cu::Context context = nullptr;  // of the caller

  bool is_p2p() const { return kind == Kind::send || kind == Kind::recv; }
  bool reduces() const {
    return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
  }
};

// What a rank reads and writes, in bytes; 0 if it does not.
std::size_t bytes_read(const Task& task, int rank, int size);
std::size_t bytes_written(const Task& task, int rank, int size);

// The bodies: they end early when the op is over.
void run_alone(const Task& task, fake_gpu::Running& running);
void run_collective(Comm& comm, const Task& task, fake_gpu::Running& running);
void run_messages(Comm& comm, const std::vector<Task>& tasks, fake_gpu::Running& running);

// To the streams: the collectives one by one, then the messages of each stream as one op.
Result launch(const std::shared_ptr<Comm>& comm, const std::vector<Task>& tasks);
// Whether all whom the tasks need have come as well, for the first time.
Result connect(Comm& comm, const std::vector<Task>& tasks);

}  // namespace fake_nccl
