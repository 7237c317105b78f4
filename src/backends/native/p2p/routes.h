// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>
#include <vector>

#include "src/backends/native/team/team.h"
#include "src/net/mesh/mesh.h"

namespace c10d { inline namespace v0 { namespace native {

// Where the ranks of a group are, for its messages.
struct Routes {
  BackendContext context;   // of the whole group
  std::vector<int> places;  // by rank: its number in the team of this host; -1: on another host
  // One to each rank on another host. Nothing was said on them, and all ranks have them by the time
  // of the first message.
  std::vector<Mesh::Connection> connections;
};

// Of a group that is on one host.
inline Routes routes_within(const Team& team) {
  Routes routes{.context = team.context(), .places = {}, .connections = {}};
  for (int rank = 0; rank < team.size(); ++rank) routes.places.push_back(rank);
  return routes;
}

}}}  // namespace c10d::v0::native
