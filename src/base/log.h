// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

enum class LogLevel { error, warn, info, debug };

// One whole line on stderr, "c10d [host:pid] warn: ...", when `level` is enabled by C10D_LOG.
// Thread-safe; control characters in `text` are made visible.
C10D_API void log_line(LogLevel level, std::string_view text) noexcept;
C10D_API bool log_enabled(LogLevel level) noexcept;

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept try {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
} catch (...) {  // out of memory: as log_line
}

// A line of what others can bring about as often as they like: at most one every few seconds, with
// how often it was so since the last. For static objects; thread-safe.
class C10D_API RareLine {
 public:
  constexpr RareLine(LogLevel level, std::string_view text) noexcept : level_(level), text_(text) {}
  void say() noexcept;

 private:
  const LogLevel level_;
  const std::string_view text_;
  std::atomic<std::int64_t> next_ns_{0};
  std::atomic<std::uint64_t> times_{0};
};

}}  // namespace c10d::v0
