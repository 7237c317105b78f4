// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace c10d::inline v0 {

// How many pages of shared memory exist, whoever touched them. `from` is at the start of a page.
inline std::size_t present_pages(std::byte* from, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  if (::mincore(from, bytes, pages.data()) != 0) return pages.size() + 1;
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char bits) { return bits & 1; }));
}

}  // namespace c10d::inline v0
