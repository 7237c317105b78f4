// SPDX-License-Identifier: BSD-3-Clause
#include "src/recorder/dump.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "c10d/env.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/base/sigpipe_guard.h"
#include "src/net/socket.h"
#include "src/recorder/format.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::size_t kInFile = kRecords;      // ops of each rank, at most: all that it keeps
constexpr std::size_t kInFileTogether = 4096;  // of all its ranks
constexpr std::size_t kOnStderr = 16;
constexpr int kMostFiles = 64;  // of one process

std::atomic<bool> g_requested{false};
std::atomic<int> g_files{0};

// All that a handler may do: the monitor thread writes the record within kMonitorPeriod.
void request_record(int /*signal*/) { g_requested.store(true, std::memory_order_relaxed); }
static_assert(std::atomic<bool>::is_always_lock_free);

// False when the reader took nothing for a second: the monitor has other groups to look after.
bool write_record_text(int fd, std::string_view text) noexcept {
  const WriteSignalsBlock block;
  while (!text.empty()) {
    pollfd reader{fd, POLLOUT, 0};
    if (::poll(&reader, 1, 1000) == 0) return false;
    // A write of so much does not block once there is room.
    const ssize_t written = ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void log_unwritten(std::string_view why) {
  log(LogLevel::error, "the record of the last ops could not be written: {}", why);
}

std::vector<GroupRecord> read_images(const Images& images) {
  std::vector<GroupRecord> groups;
  for (const auto image : images)
    if (auto group = read_image(image)) groups.push_back(std::move(*group));
  return groups;
}

// A name that no earlier process of this pid has left there; none once there were too many.
std::optional<std::string> next_record_file(const std::string& folder) {
  for (int number = g_files.fetch_add(1); number < kMostFiles; number = g_files.fetch_add(1)) {
    std::string path =
        fmt::format("{}/c10d-record-{}-{}-{}.json", folder, host_name(), getpid(), number);
    if (::access(path.c_str(), F_OK) != 0) return path;
  }
  return std::nullopt;
}

// A reader that sees the file sees all of it.
void write_record_file(const std::string& folder, const Images& images) {
  const std::optional<std::string> path = next_record_file(folder);
  if (!path) return;
  const std::string unfinished = *path + ".part";
  const std::vector<GroupRecord> groups = read_images(images);
  std::size_t ranks = 1;
  for (const GroupRecord& group : groups) ranks += group.ranks.size();
  const std::string text =
      json_of(groups, steady_ns(), std::clamp<std::size_t>(kInFileTogether / ranks, 1, kInFile));
  const Fd fd(
      ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd && write_record_text(fd.get(), text) && ::rename(unfinished.c_str(), path->c_str()) == 0)
    return log(LogLevel::warn, "the record of the last ops is in {}", *path);
  const int error = errno;
  if (fd) ::unlink(unfinished.c_str());
  log_unwritten(fmt::format("{}: {}", *path, error_text(error)));
}

}  // namespace

void install_dump_signal() {
  static constexpr std::array<std::pair<std::string_view, int>, 3> kSignals = {
      {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"QUIT", SIGQUIT}}};
  static Mutex mutex;
  static bool heeded = false;
  MutexLock lock(mutex);
  if (heeded) return;
  const auto name = env_choice("C10D_RECORD_SIGNAL");
  heeded = true;
  if (!name) return;
  for (const auto& [known, signal] : kSignals) {
    if (known != *name) continue;
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_DFL)
      return log(LogLevel::warn,
                 "C10D_RECORD_SIGNAL={} is not heeded: the program handles or ignores that signal",
                 known);
    struct sigaction ours {};
    ours.sa_handler = request_record;
    ours.sa_flags = SA_RESTART;
    sigaction(signal, &ours, nullptr);
  }
}

bool take_record_request() noexcept {
  return g_requested.load(std::memory_order_relaxed) && g_requested.exchange(false);
}

void dump_record(const Images& images) noexcept try {
  if (const auto folder = env("C10D_RECORD_DIR")) return write_record_file(*folder, images);
  write_record_text(STDERR_FILENO, text_of(read_images(images), steady_ns(), kOnStderr));
} catch (const std::exception& error) {
  log_unwritten(error.what());
}

void keep_record(std::span<const std::byte> image) noexcept try {
  if (const auto folder = env("C10D_RECORD_DIR")) write_record_file(*folder, {image});
} catch (const std::exception& error) {
  log_unwritten(error.what());
}

}}  // namespace c10d::v0
