// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// Counts what C++ allocates in the program whose one source file includes this, its libraries
// included: they find these operators. A form that is missing here calls one of these where it is
// the standard library's. The address sanitizer brings its own, so arrays and the form that does
// not throw, which are in use, are here too.
namespace c10d::counted {

inline std::atomic<std::size_t> live_bytes, peak_bytes;

inline void* taken(void* memory) {
  if (!memory) throw std::bad_alloc();
  const std::size_t bytes = ::malloc_usable_size(memory), live = live_bytes += bytes;
  std::size_t peak = peak_bytes;
  while (peak < live && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return memory;
}

inline void give_back(void* memory) noexcept {
  if (memory) live_bytes -= ::malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace c10d::counted

void* operator new(std::size_t bytes) { return c10d::counted::taken(std::malloc(bytes)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  void* const memory = std::malloc(bytes);
  return memory ? c10d::counted::taken(memory) : nullptr;
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return c10d::counted::taken(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept { c10d::counted::give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { c10d::counted::give_back(memory); }
void operator delete[](void* memory) noexcept { c10d::counted::give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { c10d::counted::give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { c10d::counted::give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  c10d::counted::give_back(memory);
}
