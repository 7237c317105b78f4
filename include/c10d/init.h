// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "c10d/process_group.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

inline constexpr Duration kDefaultTimeout = std::chrono::minutes(5);

// Ranks that meet ask the store for the keys of all in one request, which holds so many.
inline constexpr int kMaxWorldSize = 65'536;

struct InitOptions {
  // "native", "gloo", ..., a registered one; empty: C10D_BACKEND, else native.
  std::string backend{};
  // Where ranks meet:
  //   env://                               C10D_STORE, else MASTER_ADDR and MASTER_PORT; rank and
  //                                        size as detect_launch() finds them; a single process
  //                                        needs nothing
  //   tcp://host:port?rank=0&world_size=2  rank 0 serves the store there until it ends its
  //                                        last group; who goes on in a subgroup over several
  //                                        hosts then gets store_lost, so rank 0 ends last
  //   file:///path?rank=0&world_size=2     a file that all ranks see
  std::string url = "env://";
  std::shared_ptr<Store> store{};  // instead of url; then rank and size must be given
  std::optional<int> rank{};       // wins over url and environment
  std::optional<int> size{};
  std::optional<Duration> timeout{};          // of every op; default C10D_TIMEOUT, else 5 min
  std::optional<Duration> connect_timeout{};  // until all ranks are in; default as timeout
  std::string token{};  // job secret; empty: C10D_TOKEN_FD, C10D_TOKEN_FILE, else none: then the
                        // ranks can meet on loopback only
  std::string name = "world";
};

// Brings `size` ranks together and returns their group. Every rank of the job calls it with the
// same name. Throws InvalidArgument (own arguments or environment), DistTimeoutError (naming the
// missing ranks), DistNetworkError (unreachable, wrong_job, not_authenticated, address_in_use),
// DistBackendError (mismatch: a duplicate rank, told alone, or on every rank another size or
// backend, naming both sides; unsupported: no such backend here, and why).
C10D_API ProcessGroup init_process_group(InitOptions options = {});

}}  // namespace c10d::v0
