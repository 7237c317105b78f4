// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/descriptor_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "c10d/error.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::size_t kOwn = 24;     // standard streams, the store's server, signals, ...
constexpr std::size_t kPerRank = 5;  // two pipes, the process, two log files

}  // namespace

DescriptorLimit::DescriptorLimit() {
  if (getrlimit(RLIMIT_NOFILE, &callers_) != 0)
    throw_failure({.code = Code::out_of_resources, .message = "getrlimit: " + error_text(errno)});
}

DescriptorLimit::~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &callers_); }

void DescriptorLimit::make_room(std::size_t ranks, std::size_t clients) {
  const rlim_t wanted = kOwn + kPerRank * ranks + clients;
  if (wanted <= callers_.rlim_cur) return;
  rlimit raised = callers_;
  raised.rlim_cur = std::min(wanted, callers_.rlim_max);
  if (wanted <= callers_.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0) return;
  throw_failure({.code = Code::out_of_resources,
                 .message = fmt::format("{} ranks here and {} clients of the store need {} open "
                                        "files, and the limit is {}; raise it (ulimit -Hn), or "
                                        "start fewer ranks",
                                        ranks, clients, wanted, callers_.rlim_max)});
}

}}  // namespace c10d::v0
