// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "c10d/backend.h"
#include "src/backends/mpi/channel.h"
#include "src/backends/mpi/transfers.h"
#include "src/core/tasks.h"

namespace c10d::inline v0 {

Support mpi_supports(const Query& query);

// The MPI that launched the program. A collective is a blocking call of MPI, in the caller or, when
// it is async, in a thread of the group, after all ranks agreed on it: MPI can neither name who is
// missing nor be interrupted, so what can go wrong is found before. Once ranks are inside, only a
// peer that dies or is stopped can hold them there: mpirun ends the job of a dead one, and a
// stopped one holds them past the deadline. Messages are never blocking calls.
class MpiBackend : public Backend {
 public:
  MpiBackend(BackendContext context, Channel channel);
  ~MpiBackend() override;

  Support supports(const Query& query) const override { return mpi_supports(query); }
  bool agrees_first() const noexcept override { return true; }
  Work launch(const Call& call) override;
  std::unique_ptr<Backend> new_group(BackendContext context,
                                     const std::vector<int>& parent_ranks) override;
  void abort() noexcept override {}  // every wait here polls the control plane
  void shutdown(Deadline deadline) override;
  std::string description() const override;

 private:
  FailurePtr run(const Call& call);  // null is success; never throws
  Work launch_async(const Call& call);
  template <class T>
  FailurePtr run_op(const Call& call, const T& op);
  template <class T>
  Work launch_message(const Call& call, const T& op, std::uint32_t number);

  BackendContext context_;
  Channel channel_;
  std::vector<std::uint32_t> sent_;  // messages by receiver
  std::shared_ptr<Transfers> transfers_;
  std::unique_ptr<Tasks> collectives_;  // the async ones, in order
  bool open_ = true;
};

}  // namespace c10d::inline v0
