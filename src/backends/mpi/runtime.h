// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "c10d/spi/backend.h"

namespace c10d { inline namespace v0 {

// The MPI of this process. It is initialised with the first group, unless the program did so, and
// then finalised when the process exits, provided that no group lives: MPI cannot start twice, and
// a program may end its last group and make another. A process that exits with a living group does
// not finalise: that could wait for peers that are gone, while mpirun ends the job by itself. Nor
// does one whose peers are gone or stopped past the group's timeout, nor one with a call, message
// or collective in MPI that was given up and does not end.

// Whether start_mpi() may be called: it waits for all ranks inside MPI_Init_thread, and MPI starts
// once. Throws DistBackendError (unsupported) that says what to type when this process cannot.
void check_startable(const BackendContext& context);
// Makes sure that MPI runs and that MPI_COMM_WORLD is the group. Throws as above.
void start_mpi(const BackendContext& context, const std::function<void()>& look);
// What MPI can only do by blocking is done in a thread of its own, while this one waits. What
// `look` throws ends the wait, not the call: its thread, and MPI with it, then stays as it is.
void call_apart(std::function<void()> call, const std::function<void()>& look);
// Count what must end before MPI is finalised: groups, made or in the making.
void hold_mpi() noexcept;
void release_mpi() noexcept;
struct MpiHold {
  MpiHold() noexcept { hold_mpi(); }
  ~MpiHold() { release_mpi(); }
  MpiHold(const MpiHold&) = delete;
  MpiHold& operator=(const MpiHold&) = delete;
};

// To be held around every MPI call. It locks nothing where MPI takes calls from several threads at
// once.
class [[nodiscard]] MpiTurn {
 public:
  MpiTurn();
  ~MpiTurn();
  MpiTurn(const MpiTurn&) = delete;
  MpiTurn& operator=(const MpiTurn&) = delete;

 private:
  const bool locks_;
};
inline MpiTurn mpi_turn() { return MpiTurn(); }
bool mpi_is_concurrent() noexcept;  // MPI_THREAD_MULTIPLE

// Keeps what MPI still works on and cannot give back. MPI is finalised if `over`, which is asked
// when the process exits, says that MPI is done with it.
void keep_for_good(std::function<bool()> over);
template <class T>
void keep_for_good(std::unique_ptr<T> op) {
  keep_for_good([kept = std::shared_ptr<T>(std::move(op))] { return kept->over(); });
}

// Throws std::runtime_error with MPI's text unless the code is MPI_SUCCESS.
void check_mpi(int code);
const char* mpi_version();

// The largest tag of a message.
int mpi_tag_limit();

}}  // namespace c10d::v0
