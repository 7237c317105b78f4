// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// std::mutex with clang's thread-safety annotations, which -Wthread-safety checks at compile time.
#if defined(__clang__)
#define C10D_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define C10D_THREAD_ANNOTATION(x)
#endif
#define C10D_GUARDED_BY(x) C10D_THREAD_ANNOTATION(guarded_by(x))
#define C10D_REQUIRES(...) C10D_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))

namespace c10d { inline namespace v0 {

class C10D_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() C10D_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  bool try_lock() C10D_THREAD_ANNOTATION(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void unlock() C10D_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class C10D_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) C10D_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  // After a try_lock() that took it.
  MutexLock(Mutex& mutex, std::adopt_lock_t) C10D_REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() C10D_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits with the Mutex itself as the lock. Unlike std::condition_variable_any it allocates nothing.
class CondVar {
 public:
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }
  void wait(Mutex& mutex) {
    Held held(mutex);
    changed_.wait(held.lock);
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(Mutex& mutex, std::chrono::time_point<Clock, Duration> time) {
    Held held(mutex);
    return changed_.wait_until(held.lock, time);
  }
  template <class Rep, class Period>
  std::cv_status wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> time) {
    return wait_until(mutex, std::chrono::steady_clock::now() + time);
  }

 private:
  struct Held {
    explicit Held(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Held() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable changed_;
};

}}  // namespace c10d::v0
