// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "c10d/spi/backend.h"
#include "src/base/mutex.h"

namespace c10d { inline namespace v0 {

// The MPI of this process. It is initialised with the first group, unless the program did so, and
// then finalised when the process exits, provided that no group exists: MPI cannot start twice,
// and a program may end its last group and make another. A process does not finalise if it exits
// with a group, because that could wait for dead peers, while mpirun ends the job by itself. Nor
// does it if its peers are dead or stopped past the group's timeout, or if a call, message or
// collective that was given up is still in MPI.

// Whether start_mpi() may be called: it waits for all ranks inside MPI_Init_thread, and MPI starts
// once. Throws DistBackendError (unsupported) that says what to type when this process cannot.
void check_startable(const BackendContext& context);
// The rank of this process in MPI_COMM_WORLD, if MPI runs already.
std::optional<int> rank_in_world();
// Whether the group has the ranks of MPI_COMM_WORLD, with the same numbers. `ranks` are theirs in
// MPI_COMM_WORLD, by rank of the group; empty: c10d started MPI. False: they are a part of it, or
// in another order. Throws as above when the group does not fit into what MPI started.
bool is_whole_world(const BackendContext& context, const std::vector<int>& ranks);
// Makes sure that MPI runs. Throws as above.
void start_mpi(const BackendContext& context, const std::function<void()>& look);
// Makes a blocking call of MPI in a thread of its own, while this one waits and calls `look` now
// and then. An exception of `look` ends the wait, but not the call: its thread stays in MPI.
void call_apart(std::function<void()> call, const std::function<void()>& look);
// While one exists, MPI is not finalised. Each group holds one, from before it is made.
struct MpiHold {
  MpiHold() noexcept;
  ~MpiHold();
  MpiHold(const MpiHold&) = delete;
  MpiHold& operator=(const MpiHold&) = delete;
};

// To be held around every MPI call. It locks nothing where MPI takes calls from several threads at
// once.
[[nodiscard]] std::unique_lock<Mutex> mpi_turn();
bool mpi_is_concurrent() noexcept;  // MPI_THREAD_MULTIPLE

// Keeps an op that MPI still works on and cannot give back. MPI is finalised if `is_done`, which is
// asked when the process exits, says that MPI is done with it.
void keep_for_good(std::function<bool()> is_done);
template <class T>
void keep_for_good(std::unique_ptr<T> op) {
  keep_for_good([kept = std::shared_ptr<T>(std::move(op))] { return kept->is_done(); });
}

// Throws std::runtime_error with MPI's text unless the code is MPI_SUCCESS.
void check_mpi(int code);
const char* mpi_version();

// The largest tag of a message.
int mpi_tag_limit();

}}  // namespace c10d::v0
