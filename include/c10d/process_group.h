// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "c10d/backend.h"
#include "c10d/collective.h"
#include "c10d/work.h"

namespace c10d { inline namespace v0 {

struct CallOptions {
  bool async = false;  // return at once; the buffers stay the op's until the Work is done
  std::optional<Duration> timeout{};  // of this call instead of the group's; must be > 0
  void* stream = nullptr;  // CUDA stream that orders the op; with CPU tensors InvalidArgument
};

class Batch;

// A set of ranks that call collectives together. Collectives of a group match by call order,
// point-to-point by (peer, tag, order); groups are independent, so async ops of two may be called
// in another order on each rank. One thread at a time: a second one gets concurrent_use. abort()
// and the const members are thread-safe.
//
// Every op: output and input may be the same memory (in place, see collective.h); partial overlap,
// a wrong count, dtype, root or peer is InvalidArgument, thrown before anything is sent. What a
// rank does not give or get, such as the input of broadcast off the root, is ignored. Without
// `async` the call runs in this thread, returns when the result is in place, and throws; with it,
// failures come from Work::wait(). The first failure breaks the group: every pending and later call
// on every rank fails with that cause (how to go on: docs/recovery.md). Two codes leave the group
// intact: unsupported and concurrent_use.
class C10D_API ProcessGroup {
 public:
  ProcessGroup() noexcept;  // no group: every call throws destroyed
  ProcessGroup(ProcessGroup&&) noexcept;
  ProcessGroup& operator=(ProcessGroup&&) noexcept;
  // As shutdown() with a deadline of one second; never throws.
  ~ProcessGroup();
  explicit operator bool() const noexcept;

  int rank() const;
  int size() const;
  const std::string& id() const;                  // as errors print it
  const std::string& backend() const;             // name
  std::string description() const;                // Backend::description
  PlanReport plan(const PlanQuery& query) const;  // Backend::plan
  const std::vector<Member>& members() const;
  Store& store() const;  // keys of this group only
  Duration timeout() const;
  void set_timeout(Duration timeout);  // of later calls
  Support supports(const Query& query) const;
  std::uint64_t sequence() const;  // of the last collective
  // Why the group is broken, or null. Valid, as every reference from here, as long as the group.
  const Failure* failure() const;

  Work all_reduce(Tensor buffer, ReduceOp op = ReduceOp::sum, CallOptions options = {});
  Work all_reduce(Tensor output, ConstTensor input, ReduceOp op = ReduceOp::sum,
                  CallOptions options = {});
  Work broadcast(Tensor buffer, int root, CallOptions options = {});
  Work broadcast(Tensor output, ConstTensor input, int root, CallOptions options = {});
  Work all_gather(Tensor output, ConstTensor input, CallOptions options = {});
  Work all_gather_v(Tensor output, ConstTensor input, Counts counts, CallOptions options = {});
  Work reduce_scatter(Tensor output, ConstTensor input, ReduceOp op = ReduceOp::sum,
                      CallOptions options = {});
  Work reduce_scatter_v(Tensor output, ConstTensor input, Counts counts,
                        ReduceOp op = ReduceOp::sum, CallOptions options = {});
  Work reduce(Tensor output, ConstTensor input, int root, ReduceOp op = ReduceOp::sum,
              CallOptions options = {});
  Work gather(Tensor output, ConstTensor input, int root, CallOptions options = {});
  Work gather_v(Tensor output, ConstTensor input, Counts counts, int root,
                CallOptions options = {});
  Work scatter(Tensor output, ConstTensor input, int root, CallOptions options = {});
  Work scatter_v(Tensor output, ConstTensor input, Counts counts, int root,
                 CallOptions options = {});
  Work all_to_all(Tensor output, ConstTensor input, CallOptions options = {});
  Work all_to_all_v(Tensor output, ConstTensor input, Counts output_counts, Counts input_counts,
                    CallOptions options = {});
  Work barrier(CallOptions options = {});
  // A send may return before its recv is posted; it must not be counted on. Several outstanding
  // ones: isend, irecv.
  Work send(ConstTensor input, int peer, std::uint32_t tag = 0, CallOptions options = {});
  Work recv(Tensor output, int peer, std::uint32_t tag = 0, CallOptions options = {});
  Work isend(ConstTensor input, int peer, std::uint32_t tag = 0, CallOptions options = {});
  Work irecv(Tensor output, int peer, std::uint32_t tag = 0, CallOptions options = {});

  // Any op as a value: the form in which tools and traces hold them.
  Work submit(const Op& op, CallOptions options = {});

  // Ops made through the batch start together and complete as one Work.
  Batch batch(CallOptions options = {});

  // As barrier, but on every rank a timeout names all ranks that did not come; needs nothing of the
  // backend.
  void monitored_barrier(std::optional<Duration> timeout = {});

  // Collective. See Backend::allocate.
  template <Element T>
  Buffer<T> allocate(std::size_t count) {
    return Buffer<T>(allocate_bytes(checked_bytes(count, sizeof(T))));
  }

  // A group of these ranks of this one, in that order; only its members call, all with the same
  // ranks and `name`. Those that wait for each other in different calls get `mismatch`, which
  // breaks this group; after timed_out they may try again. It begins with the timeout of this one.
  ProcessGroup new_group(std::span<const int> ranks, std::string_view name = {});
  ProcessGroup new_group(std::initializer_list<int> ranks, std::string_view name = {}) {
    return new_group(std::span(ranks.begin(), ranks.size()), name);
  }
  // Collective: one group per color, ordered by key, then rank. No color: no group.
  ProcessGroup split(std::optional<int> color, int key = 0);

  // Local, idempotent, from any thread, returns within 100 ms: pending and later calls fail with
  // `revoked` on every rank.
  void abort(std::string_view why = "abort() was called") const noexcept;
  // Orderly end: waits for this rank's pending ops, then tells the peers that it leaves. Breaks the
  // group (destroyed) when some are left at the timeout: they fail. Idempotent.
  void shutdown(Duration timeout = std::chrono::seconds(30));

  struct State;
  explicit ProcessGroup(std::shared_ptr<State> state) noexcept;

 private:
  static std::size_t checked_bytes(std::size_t count, std::size_t element);
  Allocation allocate_bytes(std::size_t bytes);
  std::shared_ptr<State> state_;
};

// Collects ops of one group, then starts them together: `auto batch = group.batch();
// batch.add(Send{...}); batch.add(Recv{...}); Work work = batch.submit();`. Ops in a batch cannot
// deadlock on each other's order. Dropped without submit(), it does nothing. One thread at a time.
class C10D_API Batch {
 public:
  void add(Op op);  // counts spans must stay valid until submit()
  // Honours the batch's CallOptions: blocking or async. What one op throws before anything is sent
  // comes before any is started. Fails as the first that does. The batch is empty afterwards.
  Work submit();

 private:
  friend class ProcessGroup;
  Batch(std::shared_ptr<ProcessGroup::State> state, CallOptions options);
  std::shared_ptr<ProcessGroup::State> state_;
  CallOptions options_;
  std::vector<Op> ops_;
};

}}  // namespace c10d::v0
