// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// Of "[::1]", as an IPv6 address stands before a port, "::1"; any other text as it is.
C10D_API std::string without_brackets(std::string_view host);
// "node1:29500", with brackets around an IPv6 address: "[::1]:29500".
C10D_API std::string show_host_port(std::string_view host, std::uint16_t port);

struct C10D_API Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const noexcept { return storage.ss_family; }
  std::uint16_t port() const noexcept;
  bool is_loopback() const noexcept;
  bool is_wildcard() const noexcept;
  std::string host() const;  // numeric; no name server is asked
  std::string text() const { return show_host_port(host(), port()); }
};

// Every address of a numeric host, in brackets or not, or a name, in the resolver's order. Throws
// DistNetworkError (unreachable).
C10D_API std::vector<Address> resolve(const std::string& host, std::uint16_t port);
// The same of a name that may be made known yet: nothing, and why in `problem`, while it is not.
C10D_API std::vector<Address> try_to_resolve(const std::string& host, std::uint16_t port,
                                             std::string& problem);
// The address from which packets to `host` leave this one, numeric; empty when there is no way.
C10D_API std::string address_towards(const std::string& host);
// Of this host's network interfaces, for a message: "lo, eth0".
C10D_API std::string interface_names();
// Of the socket's own end.
C10D_API Address local_address(int fd);
// Of the other end, numeric; empty when there is none any more.
std::string peer_host(int fd);

}}  // namespace c10d::v0
