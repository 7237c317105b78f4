// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <cstdlib>
#include <string>

#include "c10d/env.h"
#include "src/net/network.h"

namespace c10d { inline namespace v0 {

// Has Open MPI send between hosts over C10D_NET_INTERFACE, unless the user chose for it. Before
// MPI_Init. Open MPI takes subnets, which may be the same on all hosts, of IPv4 only. Throws as
// chosen_networks() does.
inline void choose_network_of_mpi() {
#ifdef OPEN_MPI
  if (env("OMPI_MCA_btl_tcp_if_include") || env("OMPI_MCA_btl_tcp_if_exclude")) return;
  std::string subnets;
  for (const Network& network : chosen_networks())
    if (network.subnet.find(':') == network.subnet.npos)
      subnets += (subnets.empty() ? "" : ",") + network.subnet;
  if (!subnets.empty()) setenv("OMPI_MCA_btl_tcp_if_include", subnets.c_str(), 1);
#endif
}

}}  // namespace c10d::v0
