// SPDX-License-Identifier: BSD-3-Clause
// What the calls of NCCL have in common.
#pragma once

#include <optional>

#include "tests/fake_gpu/nccl/group.h"

#define FAKE_NCCL_API extern "C" __attribute__((visibility("default")))

namespace fake_nccl {

// What the script says that this call must return; nothing if it may go on.
std::optional<Result> faulted(const char* function, Comm* comm);
#define FAKE_NCCL_ENTER(comm) \
  if (const auto at_once = ::fake_nccl::faulted(__func__, comm)) return *at_once

// "AllReduce" of "ncclAllReduce"
inline std::string name_of(const char* function) { return function + 4; }
Result no_comm(const char* function);

// A call that a capture forbids, or that a watcher must not make.
void judge_management(const char* function);

// The settings that a config has, or what is wrong with it. Null: those given.
Result read_config(const nccl::Config* config, Settings& settings);

constexpr int kPollsOfStart = 5;

}  // namespace fake_nccl
