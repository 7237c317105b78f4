// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>
#include <vector>

#include "src/base/mutex.h"

namespace c10d { inline namespace v0 {

// Keeps what `owner` owns until the process ends, because a wrapped library still works on it and
// cannot give it back. It stays reachable, so that leak checkers do not report it.
template <class Owner>
void never_destroy(Owner owner) {
  struct Kept {
    Mutex mutex;
    std::vector<Owner> owners C10D_GUARDED_BY(mutex);
  };
  static auto& kept = *new Kept();
  MutexLock lock(kept.mutex);
  kept.owners.push_back(std::move(owner));
}

}}  // namespace c10d::v0
