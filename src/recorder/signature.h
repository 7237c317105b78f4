// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "c10d/collective.h"

namespace c10d { inline namespace v0 {

// What ranks must agree on in one call, in a form that lies in shared memory. For gather and
// scatter `count` is the shard's, which every rank knows; counts that may differ per rank are in
// `counts` as a hash.
struct Signature {
  std::uint64_t count = 0;
  std::uint64_t counts = 0;  // hash of the counts span; 0 without one
  double factor = 1;
  std::int32_t root = -1;  // or the peer of a send or recv
  std::uint32_t tag = 0;
  OpKind kind = OpKind::barrier;
  DType dtype = DType::u8;
  ReduceOp::Kind reduce_op = ReduceOp::sum;
  DeviceType device = DeviceType::cpu;
  std::uint8_t reserved[4] = {};
  bool operator==(const Signature&) const = default;
};
static_assert(sizeof(Signature) == 40);

Signature signature_of(const Op& op, int size) noexcept;
std::uint64_t hash_of(const Signature& signature) noexcept;
// "all_reduce(sum, f32 x 1024)", "broadcast(f32 x 4, root 1)".
std::string describe(const Signature& signature);
// "reduce op sum against max": the first field that differs, or empty.
std::string first_difference(const Signature& mine, const Signature& theirs);

}}  // namespace c10d::v0
