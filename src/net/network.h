// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// A network that this host is in.
struct C10D_API Network {
  std::string address;  // of this host there, numeric
  std::string subnet;   // "10.1.0.0/16"
};

// The one that `name` says: an interface of this host, an address of it, or a subnet. IPv4 comes
// before IPv6. Nothing when this host has none such.
C10D_API std::optional<Network> find_network(const std::string& name);
// Those of C10D_NET_INTERFACE, over which ranks of different hosts talk, in its order and each
// once; none when it is not set. Throws DistNetworkError (unreachable) when this host lacks one of
// them.
C10D_API std::vector<Network> chosen_networks();
// The address of this host that ranks on other hosts reach: that of the first of chosen_networks(),
// else the one from which packets to the first of `hosts` leave that is not this host itself, else
// its loopback address where one of them is. Throws as chosen_networks(), also where none of them
// has an address.
C10D_API std::string address_for_others(std::span<const std::string> hosts);
// What is wrong with the name of a host as the address at which other hosts shall reach this one:
// it can mean a loopback address here, as Debian writes a host's own name into /etc/hosts. Empty
// for other names, those that are not known, "localhost" and numeric addresses.
C10D_API std::string doubt_about(const std::string& name);

// Has the TCP connection `fd` take the congestion control of C10D_NET_CONGESTION, if that is set.
// Throws DistNetworkError (unsupported) where this host does not allow it.
C10D_API void choose_congestion_control(int fd);

}}  // namespace c10d::v0
