// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "bench/measure/shared_page.h"
#include "bench/model/options.h"
#include "c10d/process_group.h"

namespace c10d::bench {

// The ranks of one launch, beside the backends that they measure: a group of native's, and the page
// by which they meet. Every member but the accessors is collective.
class ControlGroup {
 public:
  // The file at `token_path` holds the job's secret; an empty path: an environment variable does.
  // Throws DistBackendError (unsupported) when the ranks are on several hosts.
  ControlGroup(const std::string& token_path, double timeout);

  int rank() const noexcept { return page_.rank(); }
  int size() const noexcept { return page_.size(); }
  const std::string& token() const noexcept { return token_; }
  ProcessGroup& group() noexcept { return group_; }
  Store& store() { return group_.store(); }
  SharedPage& page() noexcept { return page_; }

  struct Binding {
    std::size_t cpus = 0;  // that this process may use
    bool alike = true;     // whether all ranks may use the same; else a launcher has bound them
    bool bound = false;    // to CPUs of its own
  };
  // What a launcher has bound stays where it is.
  Binding bind(Bind bind);
  // The CPUs of each rank, after bind(): "0-3,8".
  std::vector<std::string> cpus();
  // The text that each rank gives, by rank.
  std::vector<std::string> gather(const std::string& name, const std::string& text);
  // Whether `here` is true on any rank.
  bool any(bool here) { return page_.sum(here ? 1 : 0) > 0; }

 private:
  std::string token_;
  ProcessGroup group_;
  SharedPage page_;
};

}  // namespace c10d::bench
