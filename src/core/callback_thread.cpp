// SPDX-License-Identifier: BSD-3-Clause
#include "src/core/callback_thread.h"

#include <deque>
#include <exception>
#include <thread>

#include "src/core/log.h"
#include "src/core/mutex.h"
#include "src/core/per_process.h"

namespace c10d::inline v0 {
namespace {

class CallbackThread {
 public:
  CallbackThread() {
    std::thread([this] { run(); }).detach();
  }
  void add(std::function<void()> callback) {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(callback));
    changed_.notify_one();
  }

 private:
  std::function<void()> next() {
    MutexLock lock(mutex_);
    while (queue_.empty()) changed_.wait(mutex_);
    std::function<void()> callback = std::move(queue_.front());
    queue_.pop_front();
    return callback;
  }
  [[noreturn]] void run() {
    while (true) run_callback(next());
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ C10D_GUARDED_BY(mutex_);
};

}  // namespace

void run_callback(const std::function<void()>& callback) noexcept try {
  callback();
} catch (const std::exception& error) {
  log(LogLevel::error, "a Work::then callback threw: {}", error.what());
} catch (...) {
  log(LogLevel::error, "a Work::then callback threw something that is no std::exception");
}

void run_on_callback_thread(std::function<void()> callback) {
  of_this_process<CallbackThread>().add(std::move(callback));
}

}  // namespace c10d::inline v0
