// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "c10d/backend.h"
#include "src/backends/mpi/channel.h"
#include "src/backends/mpi/engine.h"

namespace c10d::inline v0 {

Support mpi_supports(const Query& query);

// The MPI that launched the program. A blocking collective is one blocking call of MPI, after all
// ranks agreed on it: MPI can neither name who is missing nor be interrupted, so what can go wrong
// is found before. Once ranks are inside, only a peer that dies or stops can hold them there; then
// mpirun ends the job.
class MpiBackend : public Backend {
 public:
  MpiBackend(BackendContext context, Channel channel);
  ~MpiBackend() override;

  Support supports(const Query& query) const override { return mpi_supports(query); }
  Work launch(const Call& call) override;
  std::unique_ptr<Backend> new_group(BackendContext context,
                                     const std::vector<int>& parent_ranks) override;
  void abort() noexcept override {}  // every wait here polls the control plane
  void shutdown(Deadline deadline) override;
  std::string description() const override;

 private:
  using FailurePtr = std::shared_ptr<const Failure>;

  FailurePtr run(const Call& call);
  template <class T>
  FailurePtr run_op(const Call& call, const T& op);
  template <class T>
  Work launch_message(const Call& call, const T& op, std::uint32_t number);

  BackendContext context_;
  Channel channel_;
  std::vector<std::uint32_t> sent_;  // messages by receiver
  std::shared_ptr<Engine> engine_;
  bool open_ = true;
};

}  // namespace c10d::inline v0
