// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "src/backends/native/hosts/reducer.h"

// What a lane exchanges of a reduction with the lanes of its place on other hosts.
namespace c10d { inline namespace v0 { namespace native {

// What one lane sends and gets: `given` by host, the values of this host of what that one ends;
// `counts` by host, how many elements that is; `result`, where those go that this host ends. With
// `results`, by host, every host gets the results of all others, too.
struct LaneExchange {
  std::vector<Pointers> given;
  std::vector<std::size_t> counts;
  std::byte* result = nullptr;
  std::vector<std::byte*> results;
};

// Chunk by chunk: the values go out, and some chunks later the results. `scratch`: for both.
bool exchange_parts(HostCollective& collective, Scratch& scratch, const Reducer& reducer,
                    const LaneExchange& exchange);

// Reduces `count` elements, of which this host has `values`, so that all lanes of this place have
// the results.
bool reduce_everywhere(HostCollective& collective, Scratch& scratch, const Reducer& reducer,
                       HostAlgorithm algorithm, const Pointers& values, std::byte* out,
                       std::size_t count);

}}}  // namespace c10d::v0::native
