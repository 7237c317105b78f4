// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backends/native/layout.h"

namespace c10d::inline v0::native {

// Memory of the process of another rank, read where it lies (process_vm_readv), if the kernel lets
// this process: containers and security modules may not. Not thread-safe.
class PeerMemory {
 public:
  explicit PeerMemory(const Identity& theirs) noexcept : theirs_(theirs) {}
  // Whether it may be read; the first call tries it, once the peer has introduced itself.
  bool reachable() noexcept;
  // False: not all of it could be read, and nothing of this peer is reachable any more.
  bool read(void* to, std::uint64_t from, std::size_t bytes) noexcept;

 private:
  enum class Access : std::uint8_t { unknown, granted, denied };
  const Identity& theirs_;
  Access access_ = Access::unknown;
};

// Writes down where `word`, a member of whoever calls, is to be found, and gives it a value.
void introduce(Identity& own, std::uint64_t& word) noexcept;

}  // namespace c10d::inline v0::native
