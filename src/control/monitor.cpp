// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <exception>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/control/control_plane.h"
#include "src/recorder/dump.h"
#include "src/sync/process_singleton.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 {
namespace {

// One per process, for as long as the process: the liveness locks belong to its thread.
class Monitor {
 public:
  Monitor() {
    start_thread([this] { run(); }).detach();
  }

  void add(const std::shared_ptr<ControlPlane>& plane) {
    MutexLock lock(mutex_);
    entries_.push_back({plane, State::added});
    wait_until_gone(plane.get(), State::added);
  }

  void remove(ControlPlane& plane) {
    MutexLock lock(mutex_);
    for (Entry& entry : entries_)
      if (entry.plane.get() == &plane) entry.state = State::removed;
    wait_until_gone(&plane, State::removed);
  }

 private:
  enum class State { added, watched, removed };
  struct Entry {
    std::shared_ptr<ControlPlane> plane;
    State state;
  };

  void wait_until_gone(const ControlPlane* plane, State state) C10D_REQUIRES(mutex_) {
    requests_.notify_one();
    while (is_pending(plane, state)) done_.wait(mutex_);
  }

  bool is_pending(const ControlPlane* plane, State state) const C10D_REQUIRES(mutex_) {
    for (const Entry& entry : entries_)
      if (entry.plane.get() == plane && entry.state == state) return true;
    return false;
  }

  // The requests are few and short: they are served under the mutex.
  void serve_requests() C10D_REQUIRES(mutex_) {
    for (Entry& entry : entries_) {
      if (entry.state == State::added) {
        entry.plane->hold_liveness();
        entry.state = State::watched;
      } else if (entry.state == State::removed) {
        entry.plane->release_liveness();
      }
    }
    std::erase_if(entries_, [](const Entry& entry) { return entry.state == State::removed; });
    done_.notify_all();
  }

  bool has_requests() const C10D_REQUIRES(mutex_) {
    return std::any_of(entries_.begin(), entries_.end(),
                       [](const Entry& entry) { return entry.state != State::watched; });
  }

  std::vector<std::shared_ptr<ControlPlane>> next_round() {
    MutexLock lock(mutex_);
    if (!has_requests()) {
      if (entries_.empty())
        requests_.wait(mutex_);
      else
        requests_.wait_for(mutex_, kMonitorPeriod);
    }
    serve_requests();
    std::vector<std::shared_ptr<ControlPlane>> planes;
    for (const Entry& entry : entries_) planes.push_back(entry.plane);
    return planes;
  }

  [[noreturn]] void run() {
    while (true) try {
        const auto planes = next_round();
        calibrate_counter();
        if (take_record_request()) dump(planes);
        for (const auto& plane : planes) look_after(*plane);
      } catch (const std::exception& error) {
        log(LogLevel::error, "the monitor skipped a check: {}", error.what());
      }
  }

  static void look_after(ControlPlane& plane) noexcept try {
    plane.tick();
    plane.end_ops_if_broken();
    plane.keep_record_if_broken();
  } catch (const std::exception& error) {
    log(LogLevel::error, "the monitor could not check a group: {}", error.what());
  }

  static void dump(const std::vector<std::shared_ptr<ControlPlane>>& planes) {
    Images images;
    for (const auto& plane : planes) images.push_back(plane->image());
    dump_record(images);
  }

  Mutex mutex_;
  CondVar requests_, done_;
  std::vector<Entry> entries_ C10D_GUARDED_BY(mutex_);
};

}  // namespace

void watch(const std::shared_ptr<ControlPlane>& plane) { of_this_process<Monitor>().add(plane); }
void unwatch(ControlPlane& plane) noexcept {
  of_this_process<Monitor>().remove(plane);
  plane.end_polls();
}

}}  // namespace c10d::v0
