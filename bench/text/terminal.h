// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "bench/model/options.h"

namespace c10d::bench {

bool use_color(Switch asked, int fd);
// Of the terminal behind `fd`; for anything else COLUMNS, else `otherwise`.
std::size_t terminal_width(int fd, std::size_t otherwise);
bool ascii_only();

// One line on stderr that is drawn over itself and erased at the end; on anything but a terminal a
// line every 30 seconds instead.
class Progress {
 public:
  Progress(Switch asked, std::uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void advance(const std::string& what, std::uint64_t steps = 1);
  // Makes room for other output.
  void erase();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Mode : std::uint8_t { bar, heartbeat, off };
  std::string line(const std::string& what) const;

  Mode mode_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_ = started_;
  bool drawn_ = false;
};

}  // namespace c10d::bench
