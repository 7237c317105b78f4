// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/output.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>

#include "c10d/launch.h"
#include "src/core/log.h"
#include "src/core/sigpipe.h"
#include "src/launch/signals.h"
#include "src/net/socket.h"

namespace c10d::inline v0 {
namespace {

bool is_control(unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }

using std::chrono::steady_clock;

// A reader that is slow holds the job up, but not its end: from then on it has a second for each
// line, until it lets one pass, and five for all of them.
int patience_with(const std::atomic<bool>& stuck, Deadline end) {
  constexpr auto kLine = std::chrono::milliseconds(1000), kAll = 5 * kLine;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end + kAll - steady_clock::now());
  return stuck ? 0 : static_cast<int>(std::clamp(left, 0 * kLine, kLine).count());
}

bool reader_takes(int fd) {
  static std::array<std::atomic<bool>, 2> stuck_fds{};
  std::atomic<bool>& stuck = stuck_fds[fd == STDERR_FILENO ? 1 : 0];
  for (;;) {
    const Deadline end = SignalRelay::end();
    const bool ending = steady_clock::now() >= end;
    std::array<pollfd, 2> entries{pollfd{fd, POLLOUT, 0},
                                  pollfd{ending ? -1 : SignalRelay::current_fd(), POLLIN, 0}};
    const int ready = poll(entries.data(), entries.size(),
                           ending ? patience_with(stuck, end) : poll_timeout(end));
    const bool takes = ready > 0 && entries[0].revents != 0;
    if (takes || (ready == 0 && ending)) {
      stuck = !takes;
      return takes;
    }
  }
}

// A reader that went away is no failure of the job: the rest of the output is dropped. A full disk
// is none either, but worth a word.
void write_all(int fd, std::string_view text) {
  const SigpipeBlock block;
  while (!text.empty() && reader_takes(fd)) {
    // So much does not block, of a reader that takes something.
    const ssize_t written = write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written < 0) {
      static std::atomic<bool> told{false};
      if (errno != EPIPE && !told.exchange(true))
        log(LogLevel::error, "lines of ranks are lost: cannot write to {}: {}",
            fd == STDOUT_FILENO ? "stdout" : "stderr", error_text(errno));
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

std::string visible(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_control(byte)) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  return shown;
}

void LineSplitter::add(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const std::size_t room = kMaxLine - partial_.size();
    const std::size_t end = bytes.substr(0, room).find('\n');
    if (end == std::string_view::npos && bytes.size() < room) {
      partial_ += bytes;
      return;
    }
    const std::size_t taken = end == std::string_view::npos ? room : end;
    partial_ += bytes.substr(0, taken);
    bytes.remove_prefix(end == std::string_view::npos ? room : end + 1);
    sink(partial_);
    partial_.clear();
  }
}

void LineSplitter::finish(const Sink& sink) {
  if (partial_.empty()) return;
  sink(partial_);
  partial_.clear();
}

void LineTail::add(std::string_view line) {
  lines_.emplace_back(line.substr(0, kLineBytes));
  if (lines_.size() > kLines) lines_.pop_front();
}

std::string LineTail::text() const {
  std::string text;
  for (const std::string& line : lines_) {
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

void print_rank_line(int rank, bool is_stderr, std::string_view line, bool prefix) {
  const int fd = is_stderr ? STDERR_FILENO : STDOUT_FILENO;
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::string text = prefix ? fmt::format("[{}] ", rank) : std::string();
  text += isatty(fd) == 1 ? visible(line) : std::string(line);
  text += '\n';
  write_all(fd, text);
}

}  // namespace c10d::inline v0
