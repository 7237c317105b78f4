// SPDX-License-Identifier: BSD-3-Clause
// Handles that are numbers: none is ever given twice, so that one that was destroyed is known.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "tests/fake_gpu/driver/judge.h"

namespace fake_gpu {

template <class T, class Handle>
class Handles {
 public:
  // `what` is the word of the judge for one. Of some the driver reads what a destroyed one pointed
  // to, and crashes.
  Handles(const char* what, std::uintptr_t first, bool crashes = false)
      : what_(what), crashes_(crashes), first_(first) {}

  Handle add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    const std::uintptr_t number = first_ + 16 * ++made_;
    objects_.emplace(number, std::move(object));
    holds(what_, 1);
    return reinterpret_cast<Handle>(number);
  }
  // Null for what is no handle. One that was destroyed is a violation too.
  std::shared_ptr<T> find(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    if (const auto found = objects_.find(number); found != objects_.end()) return found->second;
    if (number > first_ && number <= first_ + 16 * made_) {
      const std::string why = std::string("a destroyed ") + what_ + " was used";
      violation("destroyed handle", why);
      if (crashes_ && lost_.count(number) == 0) crash(why);
    }
    return nullptr;
  }
  std::shared_ptr<T> remove(Handle handle) {
    std::shared_ptr<T> object = find(handle);
    const std::lock_guard lock(mutex_);
    if (object && objects_.erase(reinterpret_cast<std::uintptr_t>(handle)) != 0) holds(what_, -1);
    return object;
  }
  // Removes those of a context that goes, for which the answer is yes; how many.
  template <class Predicate>
  int remove_if(Predicate predicate) {
    const std::lock_guard lock(mutex_);
    int removed = 0;
    for (auto it = objects_.begin(); it != objects_.end();) {
      const bool goes = predicate(*it->second);
      if (goes) lost_.insert(it->first);
      it = goes ? objects_.erase(it) : std::next(it);
      removed += goes;
    }
    if (removed != 0) holds(what_, -removed);
    return removed;
  }

 private:
  const char* what_;
  bool crashes_;
  std::uintptr_t first_, made_ = 0;
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<T>> objects_;
  std::unordered_set<std::uintptr_t> lost_;
};

}  // namespace fake_gpu
