// SPDX-License-Identifier: BSD-3-Clause
#include "bench/text/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "bench/text/format.h"
#include "c10d/env.h"

namespace c10d::bench {

bool use_color(Switch asked, int fd) {
  if (asked != Switch::automatic) return asked == Switch::on;
  if (env("NO_COLOR")) return false;
  for (const char* name : {"CLICOLOR_FORCE", "FORCE_COLOR"})
    if (const auto value = env(name); value && *value != "0") return true;
  return isatty(fd) == 1 && env("TERM") != "dumb";
}

std::size_t terminal_width(int fd, std::size_t otherwise) {
  winsize size{};
  if (isatty(fd) == 1 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  if (const auto columns = env_integer("COLUMNS", 20, 10'000))
    return static_cast<std::size_t>(*columns);
  return otherwise;
}

bool ascii_only() {
  const auto locale = env("LC_ALL");
  return locale && (*locale == "C" || *locale == "POSIX");
}

Progress::Progress(Switch asked, std::uint64_t total)
    : mode_(Mode::bar), total_(std::max<std::uint64_t>(1, total)) {
  if (asked == Switch::off) {
    mode_ = Mode::off;
  } else if (asked == Switch::automatic &&
             (isatty(STDERR_FILENO) != 1 || env("TERM") == "dumb" || env("CI"))) {
    mode_ = Mode::heartbeat;
  }
}

Progress::~Progress() { erase(); }

std::string Progress::line(const std::string& what) const {
  const double share = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  const double elapsed = std::chrono::duration<double>(Clock::now() - started_).count();
  const std::string left = share > 0.02 ? seconds_text(elapsed / share - elapsed) : "?";
  constexpr int kBarWidth = 24;
  const int filled = static_cast<int>(share * kBarWidth);
  return fmt::format(
      "[{}{}] {:3.0f} % | {} | {} left", std::string(static_cast<std::size_t>(filled), '#'),
      std::string(static_cast<std::size_t>(kBarWidth - filled), '-'), share * 100, what, left);
}

void Progress::advance(const std::string& what, std::uint64_t steps) {
  done_ += steps;
  if (mode_ == Mode::off) return;
  const auto now = Clock::now();
  const auto pause = mode_ == Mode::bar ? std::chrono::milliseconds(100) : std::chrono::seconds(30);
  if (now - last_ < pause) return;
  last_ = now;
  if (mode_ == Mode::heartbeat) {
    fmt::print(stderr, "{}\n", line(what));
    return;
  }
  std::string text = line(what);
  const std::size_t width = terminal_width(STDERR_FILENO, 80);
  if (text.size() >= width) text.resize(width - 1);
  fmt::print(stderr, "\r\x1b[2K{}", text);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::erase() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[2K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace c10d::bench
