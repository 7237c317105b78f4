// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "c10d/launch.h"
#include "src/launch/descriptor_limit.h"
#include "src/launch/environment.h"
#include "src/launch/rendezvous.h"
#include "src/launch/spawn.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {

// What a launcher holds for its ranks before they start: the names of the job, its secret, the
// guardian, room for open files, a port, and the store where there are no other hosts.
class JobResources {
 public:
  // `options` must outlive it. Throws DistBackendError (out_of_resources), DistNetworkError,
  // InvalidArgument when there are too few CPUs to bind the ranks.
  explicit JobResources(const LaunchOptions& options);

  // Marks all processes of this host's part of the job: "NAME=value" in their environment.
  std::string marker() const;
  // A port of this host for a server of rank 0; 0 where there is none.
  std::uint16_t master_port() const noexcept { return master_port_; }
  // On several hosts, call it when the number of ranks is known. Throws what the constructor
  // throws.
  void make_room(const World& world);
  JobFacts facts(const World& world) const;
  // What all ranks of this host share; the caller adds what differs.
  SpawnOptions spawn_options() const;

 private:
  const LaunchOptions& options_;
  const bool alone_;             // no other hosts
  const std::string launch_id_;  // of this host's part
  const std::string id_;
  const std::string token_;
  DescriptorLimit descriptors_;
  Guardian guardian_;
  Fd token_fd_, null_input_, master_port_holder_;
  const std::vector<std::vector<int>> cpus_;  // of each local rank; empty: not bound
  std::uint16_t master_port_ = 0;
  std::shared_ptr<TcpStore> store_;
};

}}  // namespace c10d::v0
