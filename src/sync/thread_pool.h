// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "c10d/export.h"
#include "c10d/store.h"
#include "src/base/mutex.h"

namespace c10d { inline namespace v0 {

// Threads for what a wrapped library can only do by blocking. They start when they are needed, up
// to a limit, and are used again; all signals are blocked in them. With one thread, tasks run in
// the order in which they came.
class C10D_API ThreadPool {
 public:
  ThreadPool(std::size_t max_threads, std::size_t max_pending)
      : max_threads_(max_threads), max_pending_(max_pending) {}
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // False when max_pending tasks are not done yet, or no thread could be started. A task must not
  // throw.
  bool add(std::function<void()> task);
  // Whether every task is done; waits for it until the deadline.
  bool idle(Deadline deadline);

 private:
  void run();

  const std::size_t max_threads_;
  const std::size_t max_pending_;
  Mutex mutex_;
  CondVar work_or_end_;
  CondVar all_done_;
  std::deque<std::function<void()>> queue_ C10D_GUARDED_BY(mutex_);
  std::atomic<std::size_t> pending_ = 0;  // queued or running; changes under the mutex
  bool ending_ C10D_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // grows under the mutex
};

}}  // namespace c10d::v0
