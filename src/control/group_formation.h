// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "src/base/members.h"
#include "src/control/control_plane.h"
#include "src/control/forming.h"

namespace c10d { inline namespace v0 {

// How often a wait for ranks that join looks whether it is in vain.
inline constexpr std::chrono::milliseconds kJoinLook{100};

// What the ranks of a group learn of each other before they have a control plane: which rank cannot
// join says so in the store, the parent's failure is one of all, and the end of a process of this
// host is seen. For one thread.
class GroupFormation {
 public:
  using Cause = std::shared_ptr<const Failure>;

  explicit GroupFormation(const ControlOptions& options) : options_(options) {}  // which outlive it

  // Why the group will not come together, or null.
  Cause failure();
  // Tells all ranks that have no control plane. The first failure of all wins, and is returned.
  Cause fail(Failure failure);
  // What `part` of formation throws, or null.
  template <class Part>
  Cause attempt(const Part& part) {
    try {
      part();
      return nullptr;
    } catch (const DistError& error) {
      return std::make_shared<const Failure>(name_not_running(error.failure(), options_.members));
    } catch (const std::exception& error) {
      return std::make_shared<const Failure>(
          Failure{.code = Code::out_of_resources,
                  .message = std::string("this rank could not join: ") + error.what() +
                             "; raise ulimit -u (threads) or -v (memory)",
                  .rank = options_.rank});
    }
  }
  // Returns when all of `keys`, one by rank, are in the store. Throws failure(), or at the deadline
  // timed_out that names the ranks whose key is not there.
  void await(const std::vector<std::string>& keys);
  // That these ranks did not arrive before the deadline.
  Failure late(const std::vector<int>& missing) const;

  // For why_in_vain().
  Cause told();
  Cause parent_failure();
  Cause dead_member();

 private:
  const ControlOptions& options_;
  Cause cause_;
};

// The control plane of a member that has joined: `make(formation)` makes it, `enter(plane,
// formation)` waits until all are there. Throws the cause that all ranks learn.
template <class Plane, class Make, class Enter>
std::shared_ptr<ControlPlane> join_by(const ControlOptions& options, const Make& make,
                                      const Enter& enter) {
  struct Joiner {
    const ControlOptions& options;
    const Make& make;
    const Enter& enter;
    GroupFormation formation{options};
    std::shared_ptr<Plane> plane{};

    GroupFormation::Cause map() {
      return formation.attempt([this] { plane = make(formation); });
    }
    GroupFormation::Cause await_all() {
      return formation.attempt([this] { enter(plane, formation); });
    }
    GroupFormation::Cause tell_in_store(const GroupFormation::Cause& cause) {
      return formation.fail(*cause);
    }
    bool has_mapped() const { return plane != nullptr; }
    GroupFormation::Cause tell_in_plane(const GroupFormation::Cause& cause) {
      return plane->fail(*cause);
    }
  };
  Joiner member{options, make, enter};
  if (const auto cause = join(member)) {
    if (member.plane) {
      member.plane->leave();  // before its liveness lock goes: it has not died
      unwatch(*member.plane);
    }
    throw_failure(*cause);
  }
  return member.plane;
}

}}  // namespace c10d::v0
