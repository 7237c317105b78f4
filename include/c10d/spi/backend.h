// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/buffer.h"
#include "c10d/capability.h"
#include "c10d/spi/control.h"
#include "c10d/spi/plan.h"
#include "c10d/spi/work_source.h"
#include "c10d/store.h"
#include "c10d/work.h"

namespace c10d { inline namespace v0 {

// What a backend gets to know of the group that it serves.
struct BackendContext {
  int rank = 0;                      // rank of this process
  int size = 1;                      // number of ranks
  std::string group;                 // id, as errors print it
  std::vector<Member> members;       // by rank
  std::shared_ptr<Store> store;      // keys of this group only
  std::shared_ptr<Control> control;  // who entered which call, who died
  std::string token;                 // secret of the job; empty: none
  Duration timeout{};                // of the group when it was made
  Device device{};                   // the GPU of this rank; the CPU: none was asked for
  // Whether all ranks are on the host of this one.
  bool all_local() const noexcept {
    for (const Member& member : members)
      if (!member.same_host) return false;
    return true;
  }
};

// The interface of every backend. One object serves one group on one rank. ProcessGroup::submit()
// is its only caller: it checks the arguments, asks supports(), takes a sequence number and fixes
// the deadline first. It calls from one thread at a time, except abort().
class C10D_API Backend {
 public:
  virtual ~Backend();

  // Whether the backend can do an op with this dtype, ReduceOp and device, and if not, why not. The
  // answer depends on nothing but the query and the build, so that all ranks give the same.
  virtual Support supports(const Query& query) const = 0;
  // Whether launch() calls Control::agree() first in every collective, whatever happens. If so, a
  // blocking call is announced as soon as its arguments are checked, and the other ranks wait less.
  virtual bool agrees_first() const noexcept { return false; }
  // Whether all_reduce and reduce_scatter_v of f32 and f64 with sum add along the tree over the
  // ranks: n ranks are the first L, the largest power of two below n, and the others; each part is
  // added in the same way, then the two sums. TreeSum relies on it.
  virtual bool reduces_along_rank_tree() const noexcept { return false; }
  // The GPU whose memory it serves on this rank; the CPU if it serves none.
  virtual Device device() const noexcept { return {}; }
  // Runs the call: to its end in this thread, unless call.async. Failures are in the Work; an
  // exception out of launch() breaks the group as backend_error.
  //
  // A call on memory of a GPU is enqueued on call.stream and runs behind what is there. If it is
  // not async, launch() returns then, with a Work that is ok, and the backend calls
  // Control::finished() once the GPU is done, which may be before launch() has returned. If it is,
  // the Work ends when the GPU is done.
  //
  // A call that is captured, which supports() was asked for, becomes part of the graph: it counts
  // as done when the ranks are known to have made the same call, whatever runs.
  virtual Work launch(const Call& call) = 0;
  // What is launched between these two is one batch: async calls that start together, so that
  // messages between two ranks cross whatever their order. Unless overridden: nothing.
  virtual void begin_batch() {}
  // See begin_batch(). Also called when a launch() between them failed. What fails here is in the
  // Works.
  virtual void end_batch() noexcept {}
  // The message from `peer`, or from any rank for kAnySource, that a recv with this tag would get
  // now. Does not wait, and leaves the message where it is. Unless overridden: throws unsupported.
  virtual std::optional<Received> probe(int peer, std::uint32_t tag);
  // Memory for ProcessGroup::allocate(), on a device of whose type it is the backend. Collective
  // over the group. Unless overridden: plain memory of this rank, and unsupported on a GPU. Throws
  // DistError.
  virtual Allocation allocate(std::size_t bytes, Device device, Deadline deadline);
  // The backend of a subgroup. Called on the members of the subgroup only. parent_ranks[i] is the
  // rank in this group of rank i of the subgroup. Throws DistError; null is a failure, too.
  virtual std::unique_ptr<Backend> new_group(BackendContext context,
                                             const std::vector<int>& parent_ranks) = 0;
  // Ends the ops in flight: they fail with Control::failure(). Called on this rank only, from any
  // thread, any number of times. Returns soon.
  virtual void abort() noexcept = 0;
  // Called every 20 ms or so by a thread of c10d in a group over several hosts, also while an op
  // runs: for what must go on while this rank does something else. Returns soon. Unless overridden:
  // nothing.
  virtual void look_after() {}
  // Leaves the group in good order, after all ops are done. Waits no longer than the deadline.
  virtual void shutdown(Deadline deadline) = 0;
  // Facts for c10d-info and for benchmark headers: "gloo 0.5.0, tcp on lo".
  virtual std::string description() const = 0;
  // How it would run a call. Unless overridden: empty, for a backend that has no choice.
  virtual PlanReport plan(const PlanQuery& query) const;
};

// Makes the backend of one group on one rank. Throws DistError.
using BackendFactory = std::function<std::unique_ptr<Backend>(BackendContext)>;

// Adds a backend of the program itself under `name`, for InitOptions::backend. Every rank does so
// before init_process_group(). Throws InvalidArgument when the name is taken. Thread-safe.
C10D_API void register_backend(std::string name, BackendFactory factory);

// Makes backend `name` for a group. Throws DistBackendError (unsupported) with the reason when it
// is not available, and what the backend throws.
C10D_API std::unique_ptr<Backend> make_backend(std::string_view name, BackendContext context);

// Ends the groups of that backend which this process still has, as with their last handle, in the
// order in which they were made. For a backend whose library may end before the process does.
C10D_API void end_groups(std::string_view backend) noexcept;

// Version of this interface. A module of another version is refused with a message.
inline constexpr std::uint32_t kBackendAbiVersion = 12;
// What a module says of itself. A module is libc10d_NAME.so in a folder on C10D_BACKEND_PATH. It
// has one symbol, `extern "C" const c10d::BackendModule* c10d_backend_module()`. A module whose
// abi_version differs, or whose struct_size is smaller, is refused with a message.
struct BackendModule {
  std::uint32_t abi_version = kBackendAbiVersion;     // leave as it is
  std::uint32_t struct_size = sizeof(BackendModule);  // leave as it is
  const char* name = nullptr;                         // NAME of the file
  const char* (*version)() = nullptr;                 // of the wrapped library
  Support (*supports)(const Query&) = nullptr;        // as Backend::supports(), without a group
  std::unique_ptr<Backend> (*create)(BackendContext) = nullptr;  // as BackendFactory
  bool needs_launcher = false;                                   // see BackendInfo
  bool cuda_only = false;  // serves memory of GPUs only: see InitOptions::backend
  // Why it cannot be used here, and what to install; empty if it can. Null: it can.
  const char* (*why_unavailable)() = nullptr;
};

}}  // namespace c10d::v0
