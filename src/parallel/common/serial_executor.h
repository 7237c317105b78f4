// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace c10d { inline namespace v0 { namespace parallel {

// Runs tasks one after the other in a thread of its own. One that throws is the last.
class SerialExecutor {
 public:
  SerialExecutor() : thread_([this] { serve(); }) {}
  // Waits for the task that runs and drops the others.
  ~SerialExecutor();
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  std::uint64_t submit(std::function<void()> task);
  // Until that task and all before it are done; throws what one of them threw. A task must end by
  // itself.
  void wait(std::uint64_t number);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<std::function<void()>> tasks_;
  std::uint64_t submitted_ = 0, done_ = 0;
  bool is_ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all of the above
};

}}}  // namespace c10d::v0::parallel
