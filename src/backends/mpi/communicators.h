// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "c10d/view.h"

namespace c10d { inline namespace v0 {

// The communicators of one group, and what the collective in progress keeps until MPI is done with
// it: there is one at a time.
struct Communicators {
  MPI_Comm collectives = MPI_COMM_NULL;
  MPI_Comm headers = MPI_COMM_NULL;   // of messages
  MPI_Comm payloads = MPI_COMM_NULL;  // of messages
  int rank = 0;
  int size = 1;

  // Called now and then during a wait for the other ranks; what it throws ends the wait.
  using Look = std::function<void()>;
  // Duplicates `parent`, collectively over its ranks.
  static Communicators duplicate(MPI_Comm parent, const Look& look);
  // Over these ranks of `parent`, in this order; only they call, and all do. `tag` tells apart
  // groups made at the same time.
  static Communicators subset(MPI_Comm parent, const std::vector<int>& ranks, int tag,
                              const Look& look);
  void free_communicators() noexcept;

  // MPI's counts are ints: `count` elements as a count and a type, made for the collective in
  // progress where it must be.
  struct Elements {
    int count;
    MPI_Datatype type;
  };
  Elements elements(std::size_t count, DType dtype);
  void free_types() noexcept;

  struct IntCounts {
    std::vector<int> counts;
    std::vector<int> displacements;
    const IntCounts& set(std::span<const std::size_t> sizes);
  };
  IntCounts shards;  // what each rank has

 private:
  static Communicators of(MPI_Comm comm, const Look& look);

  std::vector<MPI_Datatype> types_;
};

}}  // namespace c10d::v0
