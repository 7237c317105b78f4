// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace c10d { inline namespace v0 { namespace nccl {

// What the environment says of nccl.
struct Settings {
  // Whether sums of f16 and bf16 are made in f32 and rounded once, at twice the bytes:
  // C10D_NCCL_ACCUMULATE. The same on all ranks of a group, which the communicator checks.
  bool accumulates_in_f32;
  // Whether the ranks meet on the host before each op: C10D_NCCL_CHECK.
  bool checks_before;
  // Whether allocate() gives memory in symmetric windows: C10D_NCCL_WINDOWS. The same on all ranks
  // of a group, which the communicator checks.
  bool uses_windows;
};

// Read once, at the first call at which every word is known. Throws InvalidArgument before.
const Settings& settings();
// Why they cannot be read, and what to do; empty if they can.
std::string why_no_settings();

}}}  // namespace c10d::v0::nccl
