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
#include "c10d/control.h"
#include "c10d/plan.h"
#include "c10d/store.h"
#include "c10d/work.h"

namespace c10d { inline namespace v0 {

struct BackendContext {
  int rank = 0;
  int size = 1;
  std::string group;             // id, as printed in errors
  std::vector<Member> members;   // by rank
  std::shared_ptr<Store> store;  // keys of this group only
  std::shared_ptr<Control> control;
  std::string token;  // the job's secret
  Duration timeout{};
  bool all_local() const noexcept {
    for (const Member& member : members)
      if (!member.same_host) return false;
    return true;
  }
};

// The narrow waist. One object serves one group; the funnel calls it from one thread at a time,
// except abort().
class C10D_API Backend {
 public:
  virtual ~Backend();

  // Pure data: the answer depends on nothing but the query and the build.
  virtual Support supports(const Query& query) const = 0;
  // Whether every collective comes to Control::agree(), first and whatever happens: then the funnel
  // announces a blocking one as soon as its arguments are checked, and the other ranks wait less.
  virtual bool agrees_first() const noexcept { return false; }
  // Runs the call: to its end in this thread unless call.async. Never throws; failures are in the
  // Work.
  virtual Work launch(const Call& call) = 0;
  // Collective over the group.
  virtual Allocation allocate(std::size_t bytes, Deadline deadline);
  // The backend of a subgroup, called on its members only. parent_ranks[i] is the rank in this
  // group of rank i.
  virtual std::unique_ptr<Backend> new_group(BackendContext context,
                                             const std::vector<int>& parent_ranks) = 0;
  // Local, bounded, idempotent, from any thread: ops in flight end with control->failure().
  virtual void abort() noexcept = 0;
  // Orderly end, after all ops are done. Waits no longer than the deadline.
  virtual void shutdown(Deadline deadline) = 0;
  // Facts for c10d-info and for benchmark headers: "gloo 0.5.0, tcp on lo".
  virtual std::string description() const = 0;
  // How it would run a call. Empty where it has no choice.
  virtual PlanReport plan(const PlanQuery& query) const;
};

using BackendFactory = std::function<std::unique_ptr<Backend>(BackendContext)>;

// Adds a backend of the program's own under `name`. Throws InvalidArgument when the name is taken.
C10D_API void register_backend(std::string name, BackendFactory factory);

struct BackendInfo {
  std::string name;
  bool available = false;
  std::string reason;   // why not, and which package provides what is missing
  std::string version;  // of the library below
  std::string path;     // of the module; empty when built in
};
// Every backend that this build knows or finds on C10D_BACKEND_PATH. Opens the modules.
C10D_API std::vector<BackendInfo> list_backends();
// What `name` can do, without making a group. Throws DistBackendError (unsupported) when it is not
// available, or was registered: then only a group's supports() knows.
C10D_API Support backend_supports(std::string_view name, const Query& query);
// Throws DistBackendError (unsupported) with the reason when `name` is not available.
C10D_API std::unique_ptr<Backend> make_backend(std::string_view name, BackendContext context);

// The one symbol of a module, `c10d_backend_module`, is a function that returns this. A module
// whose abi_version differs, or whose struct_size is smaller, is refused with a message.
inline constexpr std::uint32_t kBackendAbiVersion = 2;
struct BackendModule {
  std::uint32_t abi_version = kBackendAbiVersion;
  std::uint32_t struct_size = sizeof(BackendModule);
  const char* name = nullptr;
  const char* (*version)() = nullptr;  // of the library below
  Support (*supports)(const Query&) = nullptr;
  std::unique_ptr<Backend> (*create)(BackendContext) = nullptr;
};

}}  // namespace c10d::v0
