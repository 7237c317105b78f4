// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "c10d/env.h"
#include "c10d/error.h"
#include "src/launch/spawn.h"
#include "src/net/address.h"
#include "src/net/network.h"
#include "src/net/socket.h"
#include "tools/run/args.h"

namespace c10d { inline namespace v0 {
namespace {

struct HostAndPort {
  std::string host, port;
};

// "host", "host:29500", "[fd00::1]:29500".
HostAndPort split_address(const std::string& text) {
  const std::size_t bracket = text.starts_with('[') ? text.find(']') : text.npos;
  if (bracket != text.npos) {
    const std::string rest = text.substr(bracket + 1);
    return {text.substr(1, bracket - 1), rest.starts_with(':') ? rest.substr(1) : rest};
  }
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

int number_of_hosts(const std::string& nnodes) {
  const std::size_t colon = nnodes.find(':');
  const std::optional<int> least = to_int(nnodes.substr(0, colon));
  const std::optional<int> most = colon == nnodes.npos ? least : to_int(nnodes.substr(colon + 1));
  if (!least || !most || *least < 1)
    usage_error(fmt::format("--nnodes {}: give a number of hosts from 1 on", nnodes));
  if (*least != *most)
    usage_error(fmt::format("--nnodes {}: the number of hosts is fixed; give one number", nnodes));
  return *least;
}

void find_address(const HostsText& text, MultiHostOptions& hosts) {
  HostAndPort place{text.master_addr, text.master_port};
  if (!text.rdzv_endpoint.empty()) {
    if (!text.master_addr.empty())
      usage_error("--rdzv-endpoint and --master-addr both say where to meet: give one");
    place = split_address(text.rdzv_endpoint);
  }
  if (place.host.empty())
    usage_error(
        fmt::format("--nnodes {}: give --master-addr, the address of host 0 as the other "
                    "hosts reach it",
                    text.nnodes));
  if (place.port.empty()) place.port = kDefaultPort;
  const std::optional<int> port = to_int(place.port);
  if (!port || *port < 1 || *port > 65535)
    usage_error(fmt::format("--master-port {}: hosts need a fixed port to meet, from 1 to 65535",
                            place.port));
  hosts.address = without_brackets(place.host);
  hosts.port = static_cast<std::uint16_t>(*port);
}

struct Entry {
  std::string host, ranks;
};
const std::string kNoRanks = fmt::format("has no number of ranks from 1 to {}", kMaxLocalRanks);

[[noreturn]] void refuse(const WrittenHost& written, const std::string& why) {
  usage_error(
      fmt::format("{}: '{}' {}; write node1:4, or in a file node1 slots=4, the ranks of the "
                  "host behind its name",
                  written.where, written.text, why));
}

// Without ranks where none are written.
Entry entry_of(const WrittenHost& written) {
  std::istringstream words(written.text);
  std::string name, slots, more;
  words >> name >> slots >> more;
  if (!more.empty()) refuse(written, fmt::format("has '{}' behind its ranks", more));
  if (slots.empty()) {
    const HostAndPort parts = split_address(name);
    const bool has_ranks = name != parts.host && name != '[' + parts.host + ']';
    if (has_ranks && parts.port.empty()) refuse(written, kNoRanks);
    return {parts.host, parts.port};
  }
  if (!slots.starts_with("slots=")) refuse(written, fmt::format("has '{}' behind its name", slots));
  if (slots == "slots=") refuse(written, kNoRanks);
  return {without_brackets(name), slots.substr(std::string_view("slots=").size())};
}

std::vector<Entry> entries_of(const HostCommands& wanted) {
  std::vector<Entry> entries;
  std::set<std::string> seen;
  for (const WrittenHost& written : wanted.hosts) {
    Entry entry = entry_of(written);
    if (entry.host.empty()) refuse(written, "names no host");
    const bool plain = std::all_of(entry.host.begin(), entry.host.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
    });
    if (!plain || entry.host.front() == '-') refuse(written, "is no name or address of a host");
    if (!seen.insert(entry.host).second) refuse(written, "names a host a second time");
    const std::optional<int> ranks = to_int(entry.ranks);
    if (!entry.ranks.empty() && (!ranks || *ranks < 1 || *ranks > kMaxLocalRanks))
      refuse(written, kNoRanks);
    if (entry.ranks.empty()) entry.ranks = wanted.ranks;
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

void read_conf(const HostsText& text, MultiHostOptions& hosts) {
  if (text.rdzv_conf.empty()) return;
  for (const std::string& entry : split(text.rdzv_conf, ',')) {
    const std::size_t equals = entry.find('=');
    const std::string key = entry.substr(0, equals);
    if (key != "join_timeout" && key != "silence")
      usage_error(fmt::format("--rdzv-conf {}: join_timeout=S and silence=S are known", entry));
    const std::optional<int> seconds =
        equals == entry.npos ? std::nullopt : to_int(entry.substr(equals + 1));
    if (!seconds || *seconds < 1)
      usage_error(fmt::format("--rdzv-conf {}: give whole seconds from 1 on", entry));
    (key == "silence" ? hosts.silence : hosts.timeout) = std::chrono::seconds(*seconds);
  }
}

MultiHostOptions parse_hosts(const HostsText& text) {
  MultiHostOptions hosts;
  hosts.count = number_of_hosts(text.nnodes);
  const std::optional<int> number = text.node_rank.empty() ? std::nullopt : to_int(text.node_rank);
  if (hosts.count == 1) {
    if (!text.node_rank.empty() && number != 0)
      usage_error(fmt::format("--node-rank {}: with one host there is only 0", text.node_rank));
    return hosts;
  }
  if (!number || *number < 0 || *number >= hosts.count)
    usage_error(fmt::format("--nnodes {}: give each host a --node-rank of its own, from 0 to {}{}",
                            text.nnodes, hosts.count - 1,
                            text.node_rank.empty() ? "" : ", not " + text.node_rank));
  hosts.number = *number;
  find_address(text, hosts);
  read_conf(text, hosts);
  hosts.local_address = text.local_addr;
  if (!text.rdzv_id.empty()) hosts.job = text.rdzv_id;
  return hosts;
}

std::vector<WrittenHost> hosts_of_list(const std::string& text) {
  std::vector<WrittenHost> hosts;
  for (const std::string& part : split(text, ',')) hosts.push_back({part, "--hosts " + text});
  return hosts;
}

std::vector<WrittenHost> hosts_of_file(const std::string& path) {
  std::ifstream file(path);
  std::vector<WrittenHost> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    const std::size_t start = line.find_first_not_of(" \t\r");
    if (start == line.npos) continue;
    line = line.substr(start, line.find_last_not_of(" \t\r") + 1 - start);
    hosts.push_back({line, fmt::format("--hostfile {}, line {}", path, number)});
  }
  if (!file.eof()) usage_error(fmt::format("--hostfile {}: {}", path, error_text(errno)));
  if (hosts.empty()) usage_error(fmt::format("--hostfile {} names no host", path));
  return hosts;
}

std::vector<HostLine> host_lines(const HostCommands& wanted) {
  const std::vector<Entry> entries = entries_of(wanted);
  const std::string address = wanted.address.empty() ? entries.front().host : wanted.address;
  const std::string port = wanted.port.empty() ? kDefaultPort : wanted.port;
  std::vector<HostLine> lines;
  for (std::size_t number = 0; number < entries.size(); ++number) {
    std::vector<std::string> words = {
        fmt::format("--nnodes={}", entries.size()), fmt::format("--node-rank={}", number),
        fmt::format("--master-addr={}", address), fmt::format("--master-port={}", port),
        fmt::format("--nproc-per-node={}", entries[number].ranks)};
    words.insert(words.end(), wanted.options.begin(), wanted.options.end());
    words.insert(words.end(), wanted.command.begin(), wanted.command.end());
    lines.push_back({entries[number].host, entries[number].ranks, std::move(words)});
  }
  return lines;
}

std::string printed(const std::vector<HostLine>& lines, const std::string& launcher) {
  const std::optional<std::string> file = env("C10D_TOKEN_FILE");
  const std::string token = file ? quoted(*file) : "\"$HOME/.c10d-token\"";
  std::string text = fmt::format(
      "# Every host needs the same secret in a file of mode 0600. Make it once, on one host:\n"
      "#   (umask 077; head -c 32 /dev/urandom > {0})\n"
      "# and copy it to the others by a way that you trust, such as scp -p. It is never typed.\n",
      token);
  for (const HostLine& line : lines) {
    text += fmt::format("# on {}\nC10D_TOKEN_FILE={} {}", line.host, token, quoted(launcher));
    for (const std::string& word : line.words) text += ' ' + quoted(word);
    text += '\n';
  }
  return text;
}

std::string doubt_about(const MultiHostOptions& hosts) {
  if (hosts.count == 1 || hosts.number != 0) return {};
  const std::string doubt = c10d::doubt_about(hosts.address);
  return doubt.empty() ? "" : doubt + "; mend /etc/hosts, or give --master-addr a numeric address";
}

}}  // namespace c10d::v0
