// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "src/core/control_plane.h"

namespace c10d::inline v0 {

// How often a wait for ranks that join looks whether it is in vain.
inline constexpr std::chrono::milliseconds kJoinLook{100};

// What the ranks of a group learn of each other before they have a control plane: who cannot join
// says so in the store, and the end of a process of this host is seen. For one thread.
class Joining {
 public:
  explicit Joining(const ControlOptions& options) : options_(options) {}  // which outlive it

  // Why the group will not come together, or null.
  std::shared_ptr<const Failure> failure();
  // Tells all ranks. The first failure of all wins, and is returned.
  std::shared_ptr<const Failure> fail(Failure failure);
  // Runs `join`. Where it throws, all ranks learn why, and what is thrown is the first failure of
  // all.
  template <class Join>
  auto run(const Join& join) {
    try {
      return join();
    } catch (const DistError& error) {
      throw_failure(*fail(error.failure()));
    } catch (const std::exception& error) {
      throw_failure(*fail({.code = Code::out_of_resources,
                           .message = std::string("this rank could not join: ") + error.what() +
                                      "; raise ulimit -u (threads) or -v (memory)",
                           .rank = options_.rank}));
    }
  }
  // Returns when all of `keys`, one by rank, are in the store. Throws failure(), or at the deadline
  // timed_out that names the ranks whose key is not there.
  void await(const std::vector<std::string>& keys);
  // That these ranks did not come before the deadline.
  Failure late(const std::vector<int>& missing) const;

 private:
  std::shared_ptr<const Failure> look_for_dead();

  const ControlOptions& options_;
  std::shared_ptr<const Failure> cause_;
};

}  // namespace c10d::inline v0
