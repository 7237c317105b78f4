// SPDX-License-Identifier: BSD-3-Clause
#include "src/sync/process_singleton.h"

#include <pthread.h>

namespace c10d { inline namespace v0 {
namespace {

std::atomic<std::uint64_t> g_process_generation{0};

}  // namespace

std::uint64_t process_generation() noexcept {
  static const int installed =
      pthread_atfork(nullptr, nullptr, [] { g_process_generation.fetch_add(1); });
  static_cast<void>(installed);
  return g_process_generation.load(std::memory_order_relaxed);
}

}}  // namespace c10d::v0
