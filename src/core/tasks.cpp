// SPDX-License-Identifier: BSD-3-Clause
#include "src/core/tasks.h"

#include <csignal>
#include <system_error>

namespace c10d::inline v0 {

Tasks::~Tasks() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_or_end_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Tasks::add(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (pending_ == max_pending_) return false;
    if (pending_ >= threads_.size() && threads_.size() < max_threads_) {
      try {
        threads_.emplace_back(&Tasks::run, this);
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

bool Tasks::idle(Deadline deadline) {
  if (pending_.load(std::memory_order_acquire) == 0) return true;
  std::unique_lock lock(mutex_);
  return all_done_.wait_until(lock, deadline, [this] { return pending_ == 0; });
}

void Tasks::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  for (;;) {
    work_or_end_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      const std::function<void()> task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
    }
    lock.lock();
    if (--pending_ == 0) all_done_.notify_all();
  }
}

}  // namespace c10d::inline v0
