// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/store/limited_memory.h"

#include <cstdint>
#include <cstdlib>
#include <new>

namespace c10d::test {

thread_local std::size_t t_most_bytes = SIZE_MAX;

}  // namespace c10d::test

[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return bytes > c10d::test::t_most_bytes ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
