// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "c10d/collective.h"
#include "tests/conformance/numbers.h"

namespace c10d::conformance {

enum class Exchange : std::uint8_t {
  collective,     // of the kind in Case::op
  ring_blocking,  // send, recv
  ring_tags,      // isend, irecv: two tags, two messages each, posted in another order than sent
  any_source,     // rank 0 takes one message of every other rank, whoever comes first
  ring_batch,     // a batch of a Send and a Recv
  overlapped      // three all_reduce in flight at once: async, or as a batch
};

enum class Members : std::uint8_t {
  world,
  subgroup,  // every rank but rank 1
  dealt      // every rank, the odd ones first, from the last on: neighbours on a host are apart
};

enum class Memory : std::uint8_t {
  plain,
  allocated,
  mixed
};  // mixed: only odd ranks use allocate()

// One op, as all ranks of the world know it.
struct Case {
  std::uint64_t id = 0;
  Exchange exchange = Exchange::collective;
  OpKind op = OpKind::barrier;
  Numbers numbers{};
  Members members = Members::world;
  Memory memory = Memory::plain;
  std::size_t size = 0;    // elements, of the smaller side; of the larger side beyond 64 Ki
  std::uint32_t root = 0;  // modulo the ranks of the group
  std::size_t shift = 0;   // elements off alignment
  bool in_place = false;
  bool async = false;
};

std::string describe(const Case& c);

struct Selection {
  int ranks = 1;
  bool fixed_order = false;  // the backend promises the documented tree
  unsigned thin = 1;         // takes one case in this many
};

// Every (op, dtype, reduce op) at every size; the other choices, and large sizes, by a hash of the
// case's number: the same ones on every rank and in every run.
std::vector<Case> select_cases(const Selection& selection);

}  // namespace c10d::conformance
