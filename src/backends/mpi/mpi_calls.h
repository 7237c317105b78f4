// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include "c10d/collective.h"
#include "src/backends/mpi/communicators.h"

namespace c10d { inline namespace v0 {

// MPICH 4.0 reads from the address that means "in place" in MPI_Reduce with some roots and sizes.
#ifdef MPICH_VERSION
inline constexpr bool kReducesInPlace = false;
#else
inline constexpr bool kReducesInPlace = true;
#endif

// Whether the op is one call of MPI: its type, its reduction and its counts are MPI's, and no
// buffer stands in for another. all_to_all_v never is: whether its counts are MPI's differs from
// rank to rank.
inline bool is_direct(const Channel&, const AllToAllV&) noexcept { return false; }
bool is_direct(const Channel& channel, const AllReduce& op) noexcept;
bool is_direct(const Channel& channel, const Broadcast& op) noexcept;
bool is_direct(const Channel& channel, const AllGather& op) noexcept;
bool is_direct(const Channel& channel, const AllGatherV& op) noexcept;
bool is_direct(const Channel& channel, const ReduceScatter& op) noexcept;
bool is_direct(const Channel& channel, const ReduceScatterV& op) noexcept;
bool is_direct(const Channel& channel, const Reduce& op) noexcept;
bool is_direct(const Channel& channel, const Gather& op) noexcept;
bool is_direct(const Channel& channel, const GatherV& op) noexcept;
bool is_direct(const Channel& channel, const Scatter& op) noexcept;
bool is_direct(const Channel& channel, const ScatterV& op) noexcept;
bool is_direct(const Channel& channel, const AllToAll& op) noexcept;
bool is_direct(const Channel& channel, const Barrier& op) noexcept;

// That call, the same on all ranks whatever is in place on one of them. It blocks when `request` is
// null, else it starts the op. Returns MPI's code.
int start(Channel& channel, const AllReduce& op, MPI_Request* request);
int start(Channel& channel, const Broadcast& op, MPI_Request* request);
int start(Channel& channel, const AllGather& op, MPI_Request* request);
int start(Channel& channel, const AllGatherV& op, MPI_Request* request);
int start(Channel& channel, const ReduceScatter& op, MPI_Request* request);
int start(Channel& channel, const ReduceScatterV& op, MPI_Request* request);
int start(Channel& channel, const Reduce& op, MPI_Request* request);
int start(Channel& channel, const Gather& op, MPI_Request* request);
int start(Channel& channel, const GatherV& op, MPI_Request* request);
int start(Channel& channel, const Scatter& op, MPI_Request* request);
int start(Channel& channel, const ScatterV& op, MPI_Request* request);
int start(Channel& channel, const AllToAll& op, MPI_Request* request);
int start(Channel& channel, const Barrier& op, MPI_Request* request);

}}  // namespace c10d::v0
