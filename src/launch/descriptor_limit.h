// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>

#include <cstddef>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// How many descriptors this process may open, while it lives: more than is usual where many ranks
// need them. The ranks start with what the caller had.
class C10D_API DescriptorLimit {
 public:
  DescriptorLimit();
  ~DescriptorLimit();
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

  // For the pipes of `ranks` and `clients` of the store. Throws DistBackendError (out_of_resources)
  // with the number needed.
  void make_room(std::size_t ranks, std::size_t clients);
  const rlimit& callers() const noexcept { return callers_; }

 private:
  rlimit callers_{};
};

}}  // namespace c10d::v0
