// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/log.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <exception>
#include <string>

#include "c10d/env.h"
#include "src/base/host.h"
#include "src/base/sigpipe_guard.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"error", "warn", "info", "debug"};

LogLevel configured_level() noexcept try {
  const std::string name = env_choice("C10D_LOG").value_or("warn");
  for (std::size_t i = 0; i < kLevelNames.size(); ++i)
    if (kLevelNames[i] == name) return static_cast<LogLevel>(i);
  return LogLevel::warn;
} catch (const std::exception& error) {
  log_line(LogLevel::warn, std::string(error.what()) + "; using warn");
  return LogLevel::warn;
}

}  // namespace

bool log_enabled(LogLevel level) noexcept {
  static const LogLevel configured = configured_level();
  return level <= configured;
}

void log_line(LogLevel level, std::string_view text) noexcept try {
  std::string line = fmt::format("c10d [{}:{}] {}: ", host_name(), getpid(),
                                 kLevelNames[static_cast<std::size_t>(level)]);
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      line += c;
  }
  line += '\n';
  // One write, so that lines of several ranks do not mix. A failed write leaves nobody to tell.
  const WriteSignalsBlock block;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
} catch (...) {  // out of memory: a log line is not worth more
}

void RareLine::say() noexcept {
  constexpr std::chrono::nanoseconds kPause = std::chrono::seconds(5);
  times_.fetch_add(1);
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::int64_t next = next_ns_.load();
  if (now < next || !next_ns_.compare_exchange_strong(next, now + kPause.count())) return;
  const std::uint64_t times = times_.exchange(0);
  if (times == 1)
    log(level_, "{}", text_);
  else
    log(level_, "{} ({} times)", text_, times);
}

}}  // namespace c10d::v0
