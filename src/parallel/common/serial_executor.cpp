// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/common/serial_executor.h"

#include <utility>

namespace c10d { inline namespace v0 { namespace parallel {

SerialExecutor::~SerialExecutor() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::uint64_t SerialExecutor::submit(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
  return ++submitted_;
}

void SerialExecutor::wait(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || done_ >= number; });
  if (error_) std::rethrow_exception(error_);
}

void SerialExecutor::serve() {
  std::unique_lock lock(mutex_);
  while (!error_) {
    changed_.wait(lock, [&] { return is_ending_ || !tasks_.empty(); });
    if (is_ending_) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    ++done_;
    error_ = error;
    changed_.notify_all();
  }
}

}}}  // namespace c10d::v0::parallel
