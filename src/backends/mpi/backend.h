// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "c10d/spi/backend.h"
#include "src/backends/mpi/collectives.h"
#include "src/backends/mpi/p2p.h"
#include "src/backends/mpi/runtime.h"

namespace c10d { inline namespace v0 {

Support mpi_supports(const Query& query);

// The MPI that launched the program. See Collectives; messages are never blocking calls.
class MpiBackend : public Backend {
 public:
  MpiBackend(BackendContext context, Communicators comms);
  ~MpiBackend() override;

  Support supports(const Query& query) const override { return mpi_supports(query); }
  bool agrees_first() const noexcept override { return true; }
  Work launch(const Call& call) override;
  std::optional<Received> probe(int peer, std::uint32_t tag) override;
  std::unique_ptr<Backend> new_group(BackendContext context,
                                     const std::vector<int>& parent_ranks) override;
  // Waits in callers poll the control plane.
  void abort() noexcept override { collectives_->abort(); }
  void shutdown(Deadline deadline) override;
  std::string description() const override;

 private:
  // `args`: of the Message.
  template <class... Args>
  Work launch_message(const Call& call, std::uint32_t tag, Args&&... args);
  // Why messages with this tag are not possible here.
  std::optional<Failure> refusal(std::uint32_t tag) const;
  std::list<ProbedMessage>::iterator find_probed(int peer, std::uint32_t tag);

  std::optional<MpiHold> hold_{std::in_place};  // first, to go last
  BackendContext context_;
  Communicators comms_;  // of messages; collectives have a copy, whose lists their thread changes
  std::vector<std::uint32_t> sent_;  // messages by receiver
  std::list<ProbedMessage> probed_;  // in the order of arrival
  std::shared_ptr<Transfers> transfers_;
  std::unique_ptr<Collectives> collectives_;
};

}}  // namespace c10d::v0
