// SPDX-License-Identifier: BSD-3-Clause
#include "python/torch/src/threads.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "python/torch/src/failures.h"

namespace c10d_torch {
namespace {

struct Threads {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> waiting;
  std::size_t idle = 0, expected = 0;
  bool closed = false;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      changed.wait(lock, [&] { return !waiting.empty(); });
      --idle;
      auto what = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      try {
        what();
      } catch (...) {
        warn_of(std::current_exception(), "what hangs on a future of c10d failed");
      }
      what = nullptr;  // may hold Python objects
      lock.lock();
      if (expected != 0) --expected;
      changed.notify_all();
    }
  }
};

// Never destroyed: its threads outlive main(). A forked child has none of them, and another thread
// may have held the mutex: it begins with new ones.
Threads& threads() {
  static std::atomic<Threads*> all = [] {
    pthread_atfork(nullptr, nullptr, [] { all = new Threads; });
    return new Threads;
  }();
  return *all;
}

}  // namespace

void run_in_thread(std::function<void()> what) {
  Threads& all = threads();
  const std::lock_guard lock(all.mutex);
  if (all.closed) {  // nor may it be destroyed: it may hold Python objects
    new std::function<void()>(std::move(what));
    return;
  }
  ++all.expected;
  all.waiting.push_back(std::move(what));
  if (all.idle < all.waiting.size()) std::thread([&all] { all.serve(); }).detach();
  all.changed.notify_all();
}

void expect_callback() {
  const std::lock_guard lock(threads().mutex);
  ++threads().expected;
}

bool callback_begins() {
  const std::lock_guard lock(threads().mutex);
  return !threads().closed;
}

void callback_is_over() {
  const std::lock_guard lock(threads().mutex);
  if (threads().expected == 0) return;  // a forked child, out of a callback
  --threads().expected;
  threads().changed.notify_all();
}

void close_threads(std::chrono::milliseconds timeout) {
  Threads& all = threads();
  std::unique_lock lock(all.mutex);
  all.changed.wait_for(lock, timeout, [&] { return all.expected == 0; });
  all.closed = true;
}

}  // namespace c10d_torch
