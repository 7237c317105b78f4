// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/launch.h"

#include <fmt/format.h>

#include "c10d/error.h"
#include "src/launch/job.h"

namespace c10d::inline v0 {

LaunchResult launch(const LaunchOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxLocalRanks) {
    throw InvalidArgument(fmt::format("launch: {} ranks on one host; from 1 to {} are possible",
                                      options.ranks, kMaxLocalRanks));
  }
  if (options.command.empty()) throw InvalidArgument("launch: the command is empty");
  if (options.grace < Duration::zero()) throw InvalidArgument("launch: the grace is negative");
  Job job(options);
  return job.run();
}

}  // namespace c10d::inline v0
