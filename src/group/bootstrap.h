// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "c10d/capability.h"
#include "c10d/error.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

struct BootstrapOptions {
  std::shared_ptr<Store> store;
  std::string name;  // of the group
  std::string backend;
  int rank = 0;
  int size = 1;
  Deadline deadline{};
  bool ends_with_rank_0 = false;  // the store
};

struct Bootstrapped {
  std::vector<Member> members;
  std::shared_ptr<Store> store;  // the group's own keys
  // Gives the rank back when the group ends, so that the same name can be used again. Throws
  // nothing.
  std::function<void()> release;
  // By a rank that knows why the world did not form. Where the store ends with rank 0,
  // that one stays until the others know too, and not for long when one is gone. Throws nothing.
  std::function<void()> part;
};

// Brings the ranks together in the store: claims this rank, checks that all agree on size, backend
// and version, and learns who the others are. Throws what is wrong, on every rank of the group; a
// process that is no rank of the group cannot harm it.
Bootstrapped bootstrap(const BootstrapOptions& options);

// How often a rank that waits for others looks in the store for what keeps them; each of n ranks
// names n keys every time, so that many look less often.
Duration pause_between_looks(int ranks) noexcept;

}}  // namespace c10d::v0
