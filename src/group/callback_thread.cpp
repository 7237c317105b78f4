// SPDX-License-Identifier: BSD-3-Clause
#include "src/group/callback_thread.h"

#include <fmt/format.h>

#include <exception>
#include <system_error>

#include "src/base/log.h"
#include "src/group/work_shared.h"
#include "src/sync/process_singleton.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::size_t kMaxWaitingCallbacks = 65536;

class CallbackThread {
 public:
  CallbackThread() {
    start_thread([this] { run(); }).detach();
  }
  std::size_t waiting() {
    MutexLock lock(mutex_);
    return queue_.size();
  }
  void take(std::list<detail::Callback>& callbacks) noexcept {
    MutexLock lock(mutex_);
    queue_.splice(queue_.end(), callbacks);
    changed_.notify_one();
  }

 private:
  std::list<detail::Callback> next() {
    MutexLock lock(mutex_);
    while (queue_.empty()) changed_.wait(mutex_);
    std::list<detail::Callback> first;
    first.splice(first.end(), queue_, queue_.begin());
    return first;
  }
  [[noreturn]] void run() {
    while (true) run_callback(next().front());
  }

  Mutex mutex_;
  CondVar changed_;
  std::list<detail::Callback> queue_ C10D_GUARDED_BY(mutex_);
};

}  // namespace

void run_callback(const detail::Callback& callback) noexcept try {
  detail::WorkShared& work = *callback.work;
  if (callback.is_observer) work.observe();
  callback.call(work.state.load(std::memory_order_acquire) == WorkState::ok ? nullptr
                                                                            : &work.failure);
} catch (const std::exception& error) {
  log(LogLevel::error, "a Work::on_done callback threw: {}", error.what());
} catch (...) {
  log(LogLevel::error, "a Work::on_done callback threw something other than a std::exception");
}

void prepare_callbacks() {
  std::size_t waiting = 0;
  try {
    waiting = of_this_process<CallbackThread>().waiting();
  } catch (const std::system_error& error) {
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format("Work::on_done cannot start the thread of the callbacks: "
                                          "{}; raise ulimit -u",
                                          error.what())});
  }
  if (waiting >= kMaxWaitingCallbacks)
    throw_failure(
        {.code = Code::out_of_resources,
         .message = fmt::format("{} Work::on_done callbacks wait for those before them to "
                                "return: let them take less time than the ops",
                                waiting)});
}

void run_on_callback_thread(std::list<detail::Callback>& callbacks) noexcept {
  if (!callbacks.empty()) of_this_process<CallbackThread>().take(callbacks);
}

}}  // namespace c10d::v0
