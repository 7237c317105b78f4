// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "c10d/c.h"
#include "python/torch/src/pytorch.h"

namespace c10d_torch {

// An op that runs, and what it needs until it is done.
class Op {
 public:
  Op() = default;
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  ~Op();

  Tensors buffers;                                     // in use until the op is done
  std::vector<std::vector<std::size_t>> counts;        // until it is started
  std::vector<std::pair<at::Tensor, Tensors>> copies;  // after it: elements in a row, to tensors
  Tensors results;                                     // of Work::result() and the future
  c10d_work* handle = nullptr;                         // null until the op is started

  // The library below ours may still write to the buffers of an op that failed: they are never
  // freed.
  bool keeps_buffers = false;

  // True once it is done, whether or not it failed, and its results are in place. Waits for
  // `timeout_ns` at most.
  bool wait(std::int64_t timeout_ns);
  // What it failed with. Only after it is done.
  std::exception_ptr error() const { return error_; }
  // The same, for somebody who is told of it.
  std::exception_ptr tell_error() {
    is_told_ = true;
    return error_;
  }
  bool is_told() const { return is_told_; }
  int source() const { return source_; }
  // Puts the results in place, once.
  void finish(const c10d_failure* failure);

 private:
  std::mutex mutex_;
  bool finished_ = false;
  std::atomic<bool> is_told_ = false;
  std::exception_ptr error_;
  int source_ = -1;
};

// torch.distributed.Work. One that is dropped leaves its op to run on, with its buffers.
class Work final : public ::c10d::Work {
 public:
  Work(int rank, OpType type, std::shared_ptr<Op> op, std::uint64_t sequence);
  ~Work() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  Tensors result() override;
  void synchronize() override;
  bool wait(Milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
#if TORCH_VERSION_MAJOR >= 2
  std::uint64_t getSequencenumber() const override { return sequence_; }
#endif

 private:
  const std::shared_ptr<Op> op_;
  const std::uint64_t sequence_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Calls `then` once the op is done and its results are in place: now, or in a thread of the
// library.
void when_done(std::shared_ptr<Op> op, std::function<void(Op&)> then);

}  // namespace c10d_torch
