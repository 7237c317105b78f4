// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "c10d/collective.h"
#include "src/backends/native/hosts/placement.h"

namespace c10d { inline namespace v0 { namespace native {

// What each host sends of a reduction so that the result has the bits of one host: a value for each
// maximal part of the tree over the ranks (kernels/reduce.h) that lies in the host. That is one
// where every host has 2^k neighbouring ranks.
class PartialSums {
 public:
  // The value of `ranks` neighbouring ranks of a host, from that place on.
  struct Value {
    int host;
    int place;
    std::size_t ranks;
  };
  // In the order of the tree.
  struct Values {
    std::vector<Value> all;
    std::vector<std::size_t> ranks;             // of each
    std::vector<std::vector<std::size_t>> of_;  // by host, indices
    std::size_t most = 0;                       // of one host
    std::vector<std::size_t> before;            // by host, and of all: values of those before it
    bool inputs = false;                        // each is of one rank
    // Whether 2^k hosts have one each, and those of hosts at distance 1, 2, 4, ... make up nodes of
    // the tree, or may come in any order.
    bool halves = false;
    std::span<const std::size_t> of(int host) const noexcept {
      return of_[static_cast<std::size_t>(host)];
    }
  };

  explicit PartialSums(const Placement& placement);

  // Of an op whose result depends on the order, and of one where it does not: then one of each
  // host.
  const Values& values(DType dtype, ReduceOp::Kind kind) const noexcept {
    return has_order(dtype, kind) ? ordered_ : unordered_;
  }
  const Values& ordered() const noexcept { return ordered_; }
  static bool has_order(DType dtype, ReduceOp::Kind kind) noexcept;

 private:
  Values ordered_, unordered_;
};

}}}  // namespace c10d::v0::native
