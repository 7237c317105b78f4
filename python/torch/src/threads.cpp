// SPDX-License-Identifier: BSD-3-Clause
#include "python/torch/src/threads.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace c10d_torch {
namespace {

struct Threads {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> waiting;
  std::size_t idle = 0, busy = 0;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      changed.wait(lock, [&] { return !waiting.empty(); });
      --idle;
      auto what = std::move(waiting.front());
      waiting.pop_front();
      ++busy;
      lock.unlock();
      what();
      what = nullptr;  // may hold Python objects
      lock.lock();
      --busy;
      changed.notify_all();
    }
  }
};

// Never destroyed: its threads outlive main().
Threads& threads() {
  static auto* const all = new Threads;
  return *all;
}

}  // namespace

void run_in_thread(std::function<void()> what) {
  Threads& all = threads();
  const std::lock_guard lock(all.mutex);
  all.waiting.push_back(std::move(what));
  if (all.idle < all.waiting.size()) std::thread([&all] { all.serve(); }).detach();
  all.changed.notify_all();
}

bool wait_for_threads(std::chrono::milliseconds timeout) {
  Threads& all = threads();
  std::unique_lock lock(all.mutex);
  return all.changed.wait_for(lock, timeout, [&] { return all.waiting.empty() && all.busy == 0; });
}

}  // namespace c10d_torch
