// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "c10d/collective.h"
#include "c10d/error.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

struct Query {
  OpKind op;
  DType dtype = DType::f32;
  ReduceOp::Kind reduce_op = ReduceOp::sum;  // of reductions only
  DeviceType device = DeviceType::cpu;
};

// Whether, and if not why not; if the library below has no such op, how it is composed.
struct Support {
  bool ok = true;
  std::string reason{};    // when not ok
  std::string composed{};  // "all_to_all + local sum": when ok but not the library's own op
  explicit operator bool() const noexcept { return ok; }
};

struct Member {
  int rank = 0;
  std::string host;
  std::int64_t pid = 0;
  bool same_host = true;  // as this rank
};

// One call as it leaves the funnel: arguments checked, sequence taken, deadline fixed. A backend
// that finishes it later copies what it needs; the memory of the tensors stays valid until then,
// the spans of counts do not.
struct Call {
  const Op& op;
  std::uint64_t sequence;   // collectives and point-to-point count separately, both from 1
  std::uint64_t signature;  // hash of all that ranks must agree on
  Deadline deadline;
  bool async;
  std::uint64_t record;  // of the recorder; for Control
};

// The group's control plane as a backend uses it. Thread-safe.
class C10D_API Control {
 public:
  virtual ~Control();
  enum class Agreement { pending, agreed, failed };
  // How a thread waits for other ranks: it spins where every rank has a CPU of its own, or sleeps
  // soon, because threads of a library below need the CPU.
  enum class Waiting { spin, sleep };

  // Says that this rank entered `call`, then returns when every rank of the group has entered a
  // call with the same sequence and signature; for all_to_all_v also when input and output counts
  // fit pairwise. Either all ranks go on into the call or none does. Collectives only. A null
  // result is agreement, else the failure that broke the group: a mismatch that shows both calls,
  // the deadline, a dead peer, an abort.
  virtual std::shared_ptr<const Failure> agree(const Call& call, Waiting waiting) = 0;
  // Returns when all ranks have called it as often as this one. A rank that gives up, because the
  // group broke or at the deadline, with a failure that names every rank that did not come, gives
  // up for all: either all ranks pass or none does. A null result is passing.
  virtual std::shared_ptr<const Failure> barrier(Deadline deadline) = 0;
  // As agree() without blocking: announce once, then poll. But a rank that stops polling gives up
  // for itself alone: ops that are agreed on so must end when the group breaks.
  virtual void announce(const Call& call) = 0;
  virtual Agreement poll_agreement(const Call& call) = 0;

  // The first failure of the group on any rank, or null. Cheap: poll it in every wait.
  virtual std::shared_ptr<const Failure> failure() = 0;
  virtual bool broken() const noexcept = 0;
  // Breaks the group on every rank. The first failure wins; returns the winner.
  virtual std::shared_ptr<const Failure> fail(Failure failure) = 0;
  // A failure for a deadline that passed in `phase`, naming the ranks that have not come as far as
  // this call.
  virtual Failure timed_out(const Call& call, std::string_view phase) = 0;
  // Waits up to `patience` for evidence of why a peer stopped answering (a death takes moments to
  // be noticed), then breaks the group with that, or with `otherwise`.
  virtual std::shared_ptr<const Failure> explain(Failure otherwise, Duration patience) = 0;
};

}}  // namespace c10d::v0
