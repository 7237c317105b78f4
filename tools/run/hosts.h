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

// Of --rdzv-conf, where it says something: how long hosts wait for each other. Throws EarlyExit.
void read_conf(const HostsText& text, MultiHostOptions& hosts);
// One host when `text` names one. No token: c10d-run reads it when it starts something. Throws
// EarlyExit.
MultiHostOptions parse_hosts(const HostsText& text);

// A host as somebody wrote it, and where.
struct WrittenHost {
  std::string text, where;
};
// "node1:4,node2:4".
std::vector<WrittenHost> hosts_of_list(const std::string& text);
// A host a line: "node1", "node1:4" or "node1 slots=4"; "#" begins a comment. Throws EarlyExit when
// the file cannot be read or names no host.
std::vector<WrittenHost> hosts_of_file(const std::string& path);

struct HostCommands {
  std::vector<WrittenHost> hosts;    // without a number of ranks, `ranks`
  std::string ranks;                 // as --nproc-per-node has it
  std::string address, port;         // of host 0; empty: the first of the list, 29500
  std::vector<std::string> options;  // that every host gets
  std::vector<std::string> command;
};
// What c10d-run gets on one host, without its own name.
struct HostLine {
  std::string host, ranks;
  std::vector<std::string> words;
};
inline constexpr const char* kDefaultPort = "29500";  // where hosts meet
// Throws EarlyExit when the list makes no sense.
std::vector<HostLine> host_lines(const HostCommands& wanted);
// For each host what to type there, for a shell. `launcher`: how this program was called.
std::string printed(const std::vector<HostLine>& lines, const std::string& launcher);

// What is likely to fail, as a warning; else empty.
std::string doubt_about(const MultiHostOptions& hosts);

}}  // namespace c10d::v0
