// SPDX-License-Identifier: BSD-3-Clause
#include "src/sync/progress_thread.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/sync/process_singleton.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr int kIdleYields = 64;
constexpr std::chrono::microseconds kFirstNap{20};
constexpr std::chrono::microseconds kLongestNap{500};
// Beside a thread that computes, a yield lasts for a slice of the scheduler; a thread that wakes
// from a nap runs at once.
constexpr int kNapsInstead = 256;

class ProgressThread {
 public:
  ProgressThread() {
    start_thread([this] { run(); }).detach();
  }

  void add(std::function<Poll()> step, Start start) {
    MutexLock lock(mutex_);
    added_.push_back(std::move(step));
    hurry_ |= start == Start::at_once;
    if (hurry_ || sleeping_) changed_.notify_one();
  }

 private:
  void run() {
    for (int idle_rounds = 0;;) {
      take_added(idle_rounds);
      bool busy = false;
      // By index and in place: a step may add steps, never change this list.
      std::size_t kept = 0;
      for (std::size_t i = 0; i < steps_.size(); ++i) {
        const Poll seen = steps_[i]();
        busy |= seen != Poll::idle;
        if (seen == Poll::done) continue;
        if (kept != i) steps_[kept] = std::move(steps_[i]);
        ++kept;
      }
      steps_.resize(kept);
      idle_rounds = busy ? 0 : idle_rounds + 1;
    }
  }

  // Waits as long as there is nothing to do: for ever without a step, else the longer the longer
  // all steps have been idle.
  void take_added(int& idle_rounds) {
    MutexLock lock(mutex_);
    if (added_.empty() && steps_.empty()) {
      sleeping_ = true;
      while (added_.empty()) changed_.wait(mutex_);
      sleeping_ = false;
    } else if (added_.empty() && idle_rounds > kIdleYields) {
      const auto nap = kFirstNap * (1 << std::min(idle_rounds - kIdleYields, 5));
      changed_.wait_for(mutex_, std::min<std::chrono::microseconds>(nap, kLongestNap));
    } else if (idle_rounds > 0 && naps_instead_ > 0) {
      --naps_instead_;
      changed_.wait_for(mutex_, kFirstNap);
    } else if (idle_rounds > 0) {
      mutex_.unlock();
      const auto before = std::chrono::steady_clock::now();
      sched_yield();
      if (std::chrono::steady_clock::now() - before > kFirstNap) naps_instead_ = kNapsInstead;
      mutex_.lock();
    }
    if (!added_.empty()) idle_rounds = std::exchange(hurry_, false) ? 0 : kIdleYields;
    for (auto& step : added_) steps_.push_back(std::move(step));
    added_.clear();
  }

  // Of the thread itself. The steps are no local variable: a leak checker that stops the thread in
  // a fiber does not see the stack below.
  int naps_instead_ = 0;
  std::vector<std::function<Poll()>> steps_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::function<Poll()>> added_ C10D_GUARDED_BY(mutex_);
  bool hurry_ C10D_GUARDED_BY(mutex_) = false;     // a step in added_ is to start at once
  bool sleeping_ C10D_GUARDED_BY(mutex_) = false;  // until it is woken
};

}  // namespace

void add_progress(std::function<Poll()> step, Start start) {
  of_this_process<ProgressThread>().add(std::move(step), start);
}

}}  // namespace c10d::v0
