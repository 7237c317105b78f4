// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "c10d/launch.h"

namespace c10d { inline namespace v0 {

// What the command line says of several hosts, as text; empty: not said.
struct HostsText {
  std::string nnodes, node_rank, master_addr, master_port, local_addr;
  std::string rdzv_endpoint, rdzv_id, rdzv_conf;
};

// One host when `text` names one. No token: c10d-run reads it when it starts something. Throws
// EarlyExit.
LaunchHosts parse_hosts(const HostsText& text);

struct HostCommands {
  std::string hosts;                 // "node1:4,node2:4"; without a number, `ranks`
  std::string ranks;                 // as --nproc-per-node has it
  std::string launcher;              // how this program was called
  std::string address, port;         // of host 0; empty: the first of the list, 29500
  std::vector<std::string> options;  // that every host gets
  std::vector<std::string> command;
};
// For each host what to type there, for a shell. Throws EarlyExit when the list makes no sense.
std::string host_commands(const HostCommands& wanted);

// What is likely to fail, as a warning; else empty.
std::string doubt_about(const LaunchHosts& hosts);

}}  // namespace c10d::v0
