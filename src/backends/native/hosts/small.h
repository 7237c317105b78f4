// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "src/backends/native/hosts/host_group.h"

namespace c10d { inline namespace v0 { namespace native {

// Small collectives over hosts are over when the ranks have agreed on them: the input of each goes
// to all others with the agreement, and every rank finishes the op by itself, as if all ranks were
// on one host.

// Whether this op goes so; the same on every rank. None does for which C10D_NATIVE_HOSTS_PLAN names
// an algorithm.
bool is_small(const HostGroup& group, const Op& op) noexcept;
// The same of so many bytes that each rank gives.
bool is_small(const HostGroup& group, OpKind op, std::size_t bytes) noexcept;

// What a rank gives ends with a checksum (CRC-32C) of the rest, from that rank to those that use
// it, whichever ranks pass it on. Sets it in the last bytes of `block`; says whether it is right.
inline constexpr std::size_t kSealBytes = sizeof(std::uint32_t);
void seal(std::span<std::byte> block) noexcept;
bool is_sealed(std::span<const std::byte> block) noexcept;

// Enters such a call with all ranks, and runs it from beginning to end; null: it is done.
std::shared_ptr<const Failure> execute_small(HostGroup& group, const Call& call);

}}}  // namespace c10d::v0::native
