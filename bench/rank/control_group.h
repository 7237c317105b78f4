// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/meeting/meeting.h"
#include "bench/model/options.h"
#include "c10d/process_group.h"

namespace c10d::bench {

// The ranks of one launch, beside the backends that they measure: a group of their own, of native's
// on one host and of gloo's or mpi's between hosts, and how they meet. Every member but the
// accessors is collective.
class ControlGroup {
 public:
  // The file at `token_path` holds the job's secret; an empty path: an environment variable does.
  // Throws DistBackendError (unsupported) for ranks on several hosts without gloo and mpi.
  ControlGroup(const std::string& token_path, double timeout);

  int rank() const noexcept { return meeting_->rank(); }
  int size() const noexcept { return meeting_->size(); }
  const std::string& token() const noexcept { return token_; }
  ProcessGroup& group() noexcept { return group_; }
  Store& store() { return group_.store(); }
  Meeting& meeting() noexcept { return *meeting_; }
  // In the order of their first ranks.
  struct Host {
    std::string name;
    std::vector<int> ranks;
  };
  const std::vector<Host>& hosts() const noexcept { return hosts_; }
  const Host& own_host() const noexcept;
  // Number of this rank among those of its host.
  int local_rank() const noexcept;

  struct Binding {
    std::size_t cpus = 0;  // that this process may use
    bool alike = true;     // whether the ranks of a host may use the same; else they are bound
    bool bound = false;    // to CPUs of its own
  };
  // What a launcher has bound stays where it is.
  Binding bind(Bind bind);
  // The CPUs of each rank, after bind(): "0-3,8".
  const std::vector<std::string>& cpus() const noexcept { return cpus_; }
  // The text that each rank gives, by rank.
  std::vector<std::string> gather(const std::string& name, const std::string& text);
  // Whether `here` is true on any rank.
  bool any(bool here) { return meeting_->sum(here ? 1 : 0) > 0; }

 private:
  std::string token_;
  ProcessGroup group_;
  std::vector<Host> hosts_;
  std::unique_ptr<Meeting> meeting_;
  std::vector<std::string> cpus_;  // by rank
};

}  // namespace c10d::bench
