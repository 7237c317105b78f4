// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace c10d { inline namespace v0 { namespace native {

// Cross-memory attach: reads memory of another process of this user. Returns 0 or an errno: ESRCH,
// the process is gone; EFAULT, it has nothing there; EPERM, ENOSYS, the kernel does not allow it.
int read_process(std::int64_t pid, std::uint64_t address, void* to, std::size_t bytes) noexcept;
// The other way: to where `target` says at the moment at which the kernel looks. Returns 0, or an
// errno when that is not the place of so many bytes.
int write_process(std::int64_t pid, const iovec& target, const void* from,
                  std::size_t bytes) noexcept;

// A word that only this process has at that address: a process that reads it there reads the right
// one.
struct Identity {
  std::int64_t pid;
  std::uint64_t address;
  std::uint64_t word;
};

// Gives the caller's `word` a random value and records it, its address and the pid in `own`.
void introduce(Identity& own, std::uint64_t& word) noexcept;
// Whether the kernel lets this process read the memory of the one that filled in `theirs`.
// Containers and security modules may refuse.
bool is_readable(const Identity& theirs) noexcept;

}}}  // namespace c10d::v0::native
