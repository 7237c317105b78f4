// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/line_output.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <exception>
#include <iterator>
#include <utility>

#include "c10d/launch.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/base/sigpipe_guard.h"
#include "src/launch/signals.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::string_view kEraseRest = "\x1b[K";  // of the line that the cursor is in

bool is_control(unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }

using std::chrono::steady_clock;

// A slow reader may hold the job up, but not its end. From then on it has a second for each line
// and five for all of them; once it did not take a line in time, it has none until it takes one.
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
// is none either; it is logged once.
void write_all(int fd, std::string_view text) {
  if (text.empty()) return;
  const WriteSignalsBlock block;
  while (!text.empty() && reader_takes(fd)) {
    // A write of so much does not block once there is room, and stays whole beside those of others:
    // so it ends with a line if it can.
    const std::string_view most = text.substr(0, PIPE_BUF);
    const std::size_t lines = most.rfind('\n') + 1;  // 0: no line ends in it
    const ssize_t written = write(fd, most.data(), lines == 0 ? most.size() : lines);
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written < 0) {
      static std::atomic<bool> told{false};
      if (errno != EPIPE && !told.exchange(true))
        log(LogLevel::error, "output of ranks was lost: cannot write to {}: {}",
            fd == STDOUT_FILENO ? "stdout" : "stderr", error_text(errno));
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// One per process, as stderr is.
struct SharedStatus {
  Mutex mutex;
  StatusLine line C10D_GUARDED_BY(mutex);
};
SharedStatus& shared_status() {
  static SharedStatus status;
  return status;
}

thread_local OutputBatch* open_batch = nullptr;

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

void LineSplitter::add(std::string_view bytes, const Sink& sink, const Sink& status) {
  while (!bytes.empty()) {
    if (status && partial_.ends_with('\r')) {
      // Taken for a status, unless the '\n' of its line comes only now.
      if (bytes.front() != '\n')
        partial_.clear();
      else
        status({});
    }
    const std::size_t room = kMaxLine - partial_.size();
    const std::size_t end = bytes.substr(0, room).find_first_of(status ? "\r\n" : "\n");
    if (end == std::string_view::npos && bytes.size() < room) {
      partial_ += bytes;
      return;
    }
    if (end != std::string_view::npos && bytes[end] == '\r') {
      partial_ += bytes.substr(0, end + 1);
      bytes.remove_prefix(end + 1);
      if (!bytes.starts_with('\n'))
        status(std::string_view(partial_).substr(0, partial_.size() - 1));
      continue;
    }
    const std::size_t taken = end == std::string_view::npos ? room : end;
    partial_ += bytes.substr(0, taken);
    bytes.remove_prefix(end == std::string_view::npos ? room : end + 1);
    sink(partial_);
    partial_.clear();
  }
}

void LineSplitter::finish(const Sink& sink, const Sink& status) {
  if (status) {
    if (partial_.ends_with('\r')) partial_.clear();
    status({});
  }
  if (partial_.empty()) return;
  sink(partial_);
  partial_.clear();
}

bool LineStream::read(const LineSplitter::Sink& sink, const LineSplitter::Sink& status) {
  std::array<char, std::size_t{64} << 10> bytes;
  const ssize_t n = ::read(fd.get(), bytes.data(), bytes.size());
  if (n > 0) {
    lines.add({bytes.data(), static_cast<std::size_t>(n)}, sink, status);
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  fd.reset();
  lines.finish(sink, status);
  return false;
}

std::string StatusLine::show(std::string_view text, int columns) {
  // A byte takes a column at most, but for a tab. The last column stays free: beyond it some
  // terminals wrap.
  std::string shown = visible(text.substr(0, static_cast<std::size_t>(columns)));
  std::replace(shown.begin(), shown.end(), '\t', ' ');
  std::size_t size = std::min(shown.size(), static_cast<std::size_t>(std::max(columns, 1)) - 1);
  const auto continues = [&] { return (static_cast<unsigned char>(shown[size]) & 0xc0) == 0x80; };
  while (size > 0 && size < shown.size() && continues()) --size;
  shown.resize(size);
  std::string change = shown.empty() ? erase() : fmt::format("\r{}{}\r", shown, kEraseRest);
  text_ = std::move(shown);
  return change;
}

std::string StatusLine::erase() const {
  return text_.empty() ? "" : fmt::format("\r{}", kEraseRest);
}

std::string StatusLine::again() const { return text_.empty() ? "" : text_ + "\r"; }

int terminal_columns() {
  winsize size{};
  if (isatty(STDERR_FILENO) != 1 || ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col == 0 ? 80 : size.ws_col;
}

void print_status(std::string_view text) {
  if (open_batch != nullptr) open_batch->flush();
  std::string change;
  {
    SharedStatus& status = shared_status();
    const MutexLock lock(status.mutex);
    change = status.line.show(text, terminal_columns());
  }
  write_all(STDERR_FILENO, change);
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

OutputBatch::OutputBatch() noexcept : outer_(std::exchange(open_batch, this)) {}

OutputBatch::~OutputBatch() {
  try {
    flush();
  } catch (const std::exception& error) {
    log(LogLevel::error, "output of ranks was lost: {}", error.what());
  }
  open_batch = outer_;
}

void OutputBatch::add(int rank, bool is_stderr, std::string_view line, bool prefix) {
  constexpr std::size_t kMost = std::size_t{128} << 10;
  const int fd = is_stderr ? STDERR_FILENO : STDOUT_FILENO;
  if (fd != fd_ || text_.size() >= kMost) flush();
  if (fd != fd_) is_terminal_ = isatty(fd) == 1;
  fd_ = fd;
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (prefix) fmt::format_to(std::back_inserter(text_), "[{}] ", rank);
  if (is_terminal_)
    text_ += visible(line);
  else
    text_ += line;
  text_ += '\n';
}

void OutputBatch::flush() {
  if (text_.empty()) return;
  std::string before, after;
  {
    SharedStatus& status = shared_status();
    const MutexLock lock(status.mutex);
    before = status.line.erase();
    // A pipe may lead to the same terminal, by a process that writes the line there some time.
    if (is_terminal_) after = status.line.again();
  }
  const std::string text = std::exchange(text_, {});
  write_all(STDERR_FILENO, before);
  write_all(fd_, text);
  write_all(STDERR_FILENO, after);
}

void print_rank_line(int rank, bool is_stderr, std::string_view line, bool prefix) {
  if (open_batch != nullptr) return open_batch->add(rank, is_stderr, line, prefix);
  OutputBatch alone;
  alone.add(rank, is_stderr, line, prefix);
}

}}  // namespace c10d::v0
