// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>

#include "src/net/shared_memory.h"

namespace c10d { inline namespace v0 {

inline std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// Pages that the memory has, whoever touched or claimed them.
inline std::size_t count_pages(const SharedMapping& memory) {
  struct stat info {};
  if (::fstat(memory.fd(), &info) != 0) return ~std::size_t{0};
  return static_cast<std::size_t>(info.st_blocks) * 512 / page_bytes();
}

// How many of the pages of a part the memory had not; it has them now.
inline std::size_t add_missing_pages(const SharedMapping& memory, const std::byte* from,
                                     std::size_t bytes) {
  const std::size_t before = count_pages(memory);
  for (std::size_t at = 0; at < bytes; at += page_bytes())
    static_cast<void>(static_cast<const volatile std::byte*>(from)[at]);
  return count_pages(memory) - before;
}

}}  // namespace c10d::v0
