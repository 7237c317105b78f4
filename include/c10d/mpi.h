// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "c10d/env.h"
#include "c10d/init.h"

// A group of the ranks of a communicator, for programs that use MPI. This header is for the program
// alone: it calls the MPI of the program, and the library knows nothing of it.
namespace c10d { inline namespace v0 {

namespace detail {

// What rank 0 tells the others.
struct MpiRendezvous {
  std::array<char, 256> host{};
  std::array<char, 64> token{};
  std::array<char, 1024> error{};  // why there is no store; empty: there is one
  Code code = Code::unreachable;   // of the error
  std::uint16_t port = 0;
};

template <std::size_t n>
void copy_text(std::array<char, n>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), text.size() < n ? text.size() : n - 1);
}

inline bool is_on_one_host(MPI_Comm comm, int size) {
  MPI_Comm host = MPI_COMM_NULL;
  int here = 0, all_here = 0;
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &here);
  MPI_Comm_free(&host);
  here = here == size ? 1 : 0;
  MPI_Allreduce(&here, &all_here, 1, MPI_INT, MPI_MIN, comm);
  return all_here != 0;
}

inline std::string random_token() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  std::string token;
  for (int i = 0; i < 48; ++i) token += kDigits[random() % 16];
  return token;
}

}  // namespace detail

// Makes a group with the ranks of `comm`, in the same order, on any backend: with `native` or
// `gloo` its ops use MPI for nothing, with `mpi` they go through the MPI of the program, beside its
// own messages. The ranks meet in a store that rank 0 of `comm` serves until its last group ends;
// MPI tells the others where, and a secret that is new with every call.
//
// Collective over `comm`, between MPI_Init and MPI_Finalize. The thread level may be
// MPI_THREAD_SINGLE, except for `mpi`, which needs MPI_THREAD_SERIALIZED. The group may outlive
// `comm`. A group of the backend `mpi` ends inside MPI_Finalize, if not before; one of another
// backend may outlive MPI.
//
// `options` may give backend, timeouts, name and stop. `address` is the one of rank 0's host as the
// other hosts reach it, given by rank 0; empty: the loopback address if all ranks are on one host,
// else the name of the host. Throws what init_process_group() and make_tcp_store() throw, on every
// rank; DistNetworkError where rank 0 cannot serve the store there; InvalidArgument where a
// launcher started several processes but MPI_COMM_WORLD has one rank.
inline ProcessGroup from_mpi(MPI_Comm comm, InitOptions options = {}, std::string address = {}) {
  int rank = 0, size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  int world_size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (const LaunchInfo launch = world_size == 1 ? detect_launch() : LaunchInfo{}; launch.size > 1)
    throw InvalidArgument("from_mpi: MPI_COMM_WORLD has one rank, but the launcher (" +
                          launch.launcher + ") started " + std::to_string(launch.size) +
                          ": start with mpirun, or with c10d-run --via mpirun");
  const bool on_one_host = detail::is_on_one_host(comm, size);
  detail::MpiRendezvous rendezvous;
  std::shared_ptr<TcpStore> store;
  if (rank == 0) {
    if (address.empty() && on_one_host) address = "127.0.0.1";
    if (address.empty()) {
      std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
      int length = 0;
      MPI_Get_processor_name(name.data(), &length);
      address.assign(name.data(), static_cast<std::size_t>(length));
    }
    const std::string token = detail::random_token();
    try {
      store = make_tcp_store({.host = address, .server = true, .token = token});
      rendezvous.port = store->port();
    } catch (const DistError& error) {
      rendezvous.code = error.code();
      detail::copy_text(rendezvous.error, error.failure().message);
    } catch (const std::exception& error) {
      detail::copy_text(rendezvous.error, error.what());
    }
    detail::copy_text(rendezvous.host, address);
    detail::copy_text(rendezvous.token, token);
  }
  MPI_Bcast(&rendezvous, sizeof rendezvous, MPI_BYTE, 0, comm);
  if (rendezvous.error[0] != '\0')
    throw_failure({.code = rendezvous.code,
                   .message = std::string("from_mpi, rank 0: ") + rendezvous.error.data(),
                   .rank = 0});
  options.token = rendezvous.token.data();
  if (rank != 0)
    store = make_tcp_store(
        {.host = rendezvous.host.data(), .port = rendezvous.port, .token = options.token});
  options.store = store;
  options.rank = rank;
  options.size = size;
  return init_process_group(std::move(options));
}

}}  // namespace c10d::v0
