// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "c10d/process_group.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

// Timeout of ops where neither InitOptions nor C10D_TIMEOUT gives one.
inline constexpr Duration kDefaultTimeout = std::chrono::minutes(5);

// Most ranks of a world: each asks the store for the keys of all in one request, which holds so
// many.
inline constexpr int kMaxWorldSize = 65'536;

// Options of init_process_group(). Every field may be left out.
struct InitOptions {
  // Name of the backend: "native", "gloo", "mpi", "nccl", or one that register_backend() added.
  // Empty: C10D_BACKEND, else native. "cuda:nccl,cpu:gloo" names one for each kind of memory. A
  // backend for GPUs only, such as nccl, needs another one for host memory: unless it is named that
  // is native.
  std::string backend{};
  // How the ranks find each other:
  // - env:// uses C10D_STORE, else MASTER_ADDR and MASTER_PORT. Rank and size are those of
  //   detect_launch(). A single process needs none of them.
  // - tcp://host:port?rank=0&world_size=2: rank 0 serves the store at this address until it ends
  //   its last group. What needs the store then throws store_lost: new_group, split, allocate and
  //   the store itself.
  // - file:///path?rank=0&world_size=2: a file that all ranks can open.
  std::string url = "env://";
  // Use this store instead of the url. Then rank and size must be given.
  std::shared_ptr<Store> store{};
  std::optional<int> rank{};  // instead of that of the url or the environment
  std::optional<int> size{};  // instead of that of the url or the environment
  // The GPU of this rank, if its backend serves GPUs. Default: C10D_DEVICE, else the rank among
  // those of its host modulo the number of GPUs that this process sees.
  std::optional<int> device{};
  std::optional<Duration> timeout{};          // of every op; default C10D_TIMEOUT, else 5 minutes
  std::optional<Duration> connect_timeout{};  // until all ranks joined; default: timeout
  // Secret of the job. Empty: that of C10D_TOKEN_FD, else of C10D_TOKEN_FILE, else none. Without a
  // secret the ranks can meet on loopback only.
  std::string token{};
  std::string name = "world";  // of the group; another group over the same store has another name
  // A stop that is requested here breaks the group and its subgroups, as abort() does: their
  // pending and later calls fail with `revoked` on every rank. It does not end the joining of the
  // ranks, which connect_timeout bounds.
  std::stop_token stop{};
};

// Brings `size` ranks together and returns their group (torch.distributed.init_process_group).
// Collective: every rank of the job calls it, with the same name, size and backend. It returns on
// every rank or throws on every rank, except for what only one rank did wrong.
// Throws
// - InvalidArgument: own options or environment make no sense;
// - DistTimeoutError: names the ranks that did not arrive within connect_timeout;
// - DistNetworkError: unreachable, also for a C10D_NET_INTERFACE that this host has not, wrong_job,
//   version_mismatch, not_authenticated, address_in_use;
// - DistBackendError mismatch: two processes claim one rank (only the second one is told), or ranks
//   have different sizes or backends (every rank is told, with both sides);
// - DistBackendError unsupported: this backend is not available here, with the reason.
C10D_API ProcessGroup init_process_group(InitOptions options = {});

}}  // namespace c10d::v0
