// SPDX-License-Identifier: BSD-3-Clause
#include "src/sync/thread_pool.h"

#include <system_error>

#include "src/sync/thread.h"

namespace c10d { inline namespace v0 {

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  work_or_end_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool ThreadPool::add(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    if (pending_ == max_pending_) return false;
    if (pending_ >= threads_.size() && threads_.size() < max_threads_) {
      try {
        threads_.push_back(start_thread([this] { run(); }));
      } catch (const std::system_error&) {
        return false;
      }
    }
    queue_.push_back(std::move(task));
    ++pending_;
  }
  work_or_end_.notify_one();
  return true;
}

bool ThreadPool::idle(Deadline deadline) {
  if (pending_.load(std::memory_order_acquire) == 0) return true;
  MutexLock lock(mutex_);
  while (pending_ != 0)
    if (all_done_.wait_until(mutex_, deadline) == std::cv_status::timeout) return pending_ == 0;
  return true;
}

void ThreadPool::run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!ending_ && queue_.empty()) work_or_end_.wait(mutex_);
    if (queue_.empty()) return;
    {
      const std::function<void()> task = std::move(queue_.front());
      queue_.pop_front();
      mutex_.unlock();
      task();
    }
    mutex_.lock();
    if (--pending_ == 0) all_done_.notify_all();
  }
}

}}  // namespace c10d::v0
