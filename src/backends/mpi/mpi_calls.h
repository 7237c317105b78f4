// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <type_traits>

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
// buffer stands in for another. An op without an overload here is always direct. The exception is
// all_to_all_v, which never is: whether its counts fit MPI's differs from rank to rank.
template <class T>
bool is_direct(const Communicators&, const T&) noexcept {
  return !std::is_same_v<T, AllToAllV>;
}
bool is_direct(const Communicators& comms, const AllReduce& op) noexcept;
bool is_direct(const Communicators& comms, const Broadcast& op) noexcept;
bool is_direct(const Communicators& comms, const AllGatherV& op) noexcept;
bool is_direct(const Communicators& comms, const ReduceScatter& op) noexcept;
bool is_direct(const Communicators& comms, const ReduceScatterV& op) noexcept;
bool is_direct(const Communicators& comms, const Reduce& op) noexcept;
bool is_direct(const Communicators& comms, const Scan& op) noexcept;
bool is_direct(const Communicators& comms, const Exscan& op) noexcept;
bool is_direct(const Communicators& comms, const GatherV& op) noexcept;
bool is_direct(const Communicators& comms, const ScatterV& op) noexcept;

// That call, the same on all ranks whatever is in place on one of them. It blocks when `request` is
// null, else it starts the op. Returns MPI's code.
int start(Communicators& comms, const AllReduce& op, MPI_Request* request);
int start(Communicators& comms, const Broadcast& op, MPI_Request* request);
int start(Communicators& comms, const AllGather& op, MPI_Request* request);
int start(Communicators& comms, const AllGatherV& op, MPI_Request* request);
int start(Communicators& comms, const ReduceScatter& op, MPI_Request* request);
int start(Communicators& comms, const ReduceScatterV& op, MPI_Request* request);
int start(Communicators& comms, const Reduce& op, MPI_Request* request);
int start(Communicators& comms, const Scan& op, MPI_Request* request);
int start(Communicators& comms, const Exscan& op, MPI_Request* request);
int start(Communicators& comms, const Gather& op, MPI_Request* request);
int start(Communicators& comms, const GatherV& op, MPI_Request* request);
int start(Communicators& comms, const Scatter& op, MPI_Request* request);
int start(Communicators& comms, const ScatterV& op, MPI_Request* request);
int start(Communicators& comms, const AllToAll& op, MPI_Request* request);
int start(Communicators& comms, const Barrier& op, MPI_Request* request);

}}  // namespace c10d::v0
