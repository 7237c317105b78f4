// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "c10d/backend.h"

namespace c10d::inline v0 {

struct BootstrapOptions {
  std::shared_ptr<Store> store;
  std::string name;  // of the group
  std::string backend;
  int rank = 0;
  int size = 1;
  Deadline deadline{};
};

struct Bootstrapped {
  std::vector<Member> members;
  std::shared_ptr<Store> store;  // the group's own keys
  // Gives the rank back when the group ends, so that the same name can be used again. Throws
  // nothing.
  std::function<void()> release;
};

// Brings the ranks together in the store: claims this rank, checks that all agree on size, backend
// and version, and learns who the others are.
Bootstrapped bootstrap(const BootstrapOptions& options);

}  // namespace c10d::inline v0
