// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "c10d/collective.h"
#include "src/backends/common/owned_call.h"
#include "src/backends/mpi/communicators.h"
#include "src/backends/mpi/mpi_calls.h"
#include "src/backends/mpi/runtime.h"

namespace c10d { inline namespace v0 {

// One collective as steps: each calls MPI or works locally, and the next one begins when that is
// done. The steps that communicate are the same on all ranks, whatever is in place or async on one
// of them. Without `polls`, on which all ranks agree, MPI's own collectives block. An op with an
// exchange, which a rank may give up, has none of those: the others would wait in them for ever.
class Schedule {
 public:
  using Step = std::function<void()>;
  using Counts = std::vector<std::size_t>;

  Schedule(Communicators& comms, bool polls) : comms_(comms), polls_(polls) {}
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // Appends the op. It copies what it needs of the op's counts.
  template <class T>
  void add(const T& op) {
    if constexpr (!std::is_same_v<T, AllToAllV>)
      if (is_direct(comms_, op)) return add_step([this, op = keep(op)] { start_one(op); });
    if constexpr (requires { this->compose(op); }) compose(keep(op));  // else it is always direct
  }
  void add_step(Step step) { steps_.push_back(std::move(step)); }

  // Goes as far as it can without waiting; true at the end. Throws std::runtime_error with MPI's
  // error, or what an allocation throws; then nothing of it is in progress unless MPI says
  // otherwise.
  bool advance();
  // Whether MPI may still touch the op's memory.
  bool in_progress() const noexcept;
  // Whether MPI is done with an op that was given up.
  bool is_done() noexcept;

 private:
  // A piece of memory for a peer, or from one.
  struct Piece {
    int peer;
    View view;
  };

  template <class T>
  T keep(T op) {
    keep_counts(op, [this](std::span<const std::size_t> counts) -> std::span<const std::size_t> {
      return counts_.emplace_back(counts.begin(), counts.end());
    });
    return op;
  }
  template <class T>
  void start_one(const T& op) {
    if (!polls_) return check_mpi(start(comms_, op, nullptr));
    const auto turn = mpi_turn();
    check_mpi(start(comms_, op, next_request()));
  }
  // Where MPI shall put a request: in its place beforehand, since no memory may be missing once
  // MPI has begun.
  MPI_Request* next_request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  View scratch(std::size_t count, DType dtype);
  Counts equal(std::size_t count) const;

  void compose(const AllReduce& op);
  void compose(const Broadcast& op);
  void compose(const AllGatherV& op);
  void compose(const ReduceScatter& op);
  void compose(const ReduceScatterV& op);
  void compose(const Reduce& op);
  void compose(const Scan& op);
  void compose(const Exscan& op);
  void compose(const GatherV& op);
  void compose(const ScatterV& op);
  void compose(const AllToAllV& op);

  void add_multiply(void* output, ConstView input, ReduceOp op);
  void add_divide(View view);
  void add_copy(View to, ConstView from);
  // Sends given(peer) to each peer and receives taken(peer) from it. Both are empty where no
  // message goes; with this rank itself they are a copy.
  template <class Given, class Taken>
  void add_exchange(Given given, Taken taken);
  // Every rank sends shard i of its input to rank i, which reduces what it gets into `own`.
  void add_collect(ConstView input, View own, std::span<const std::size_t> counts, ReduceOp op);
  // Of ReduceScatter and ReduceScatterV.
  template <class T>
  void add_reduce_scatter(const T& op, std::span<const std::size_t> counts);
  // Of Scan and Exscan.
  template <class T>
  void add_scan(const T& op);
  // Every rank sends shard i of its input to rank i, which reduces that shard of every rank's
  // result and sends each to its rank.
  template <class T>
  void add_collected_scan(const T& op);
  // As add_collect() one rank after the other, where the counts are too large for MPI.
  void add_reduce_each(ConstView input, View own, std::span<const std::size_t> counts, ReduceOp op);

  Communicators& comms_;
  const bool polls_;
  std::deque<Step> steps_;
  std::vector<MPI_Request> requests_;
  std::deque<Counts> counts_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}}  // namespace c10d::v0
