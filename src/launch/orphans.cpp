// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/orphans.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace c10d { inline namespace v0 {
namespace {

// Everything here runs on the stack: the caller may be a forked child in which another thread's
// locks are held.
constexpr std::size_t kChunk = 4096;
constexpr int kMaxRounds = 100;  // a fork bomb wins the race; it must not also hang the launcher

// Whether the bytes of `fd` contain `marker` as a whole entry, entries ending in a zero byte.
bool has_entry(int fd, const char* marker) noexcept {
  const std::size_t length = std::strlen(marker) + 1;  // with the zero
  char chunk[kChunk];
  std::size_t matched = 0;
  bool at_start = true;
  for (;;) {
    const ssize_t n = read(fd, chunk, sizeof chunk);
    if (n <= 0) return false;
    for (ssize_t i = 0; i < n; ++i) {
      const char c = chunk[i];
      if ((at_start || matched > 0) && c == marker[matched]) {
        if (++matched == length) return true;
      } else {
        matched = 0;
      }
      at_start = c == '\0';
    }
  }
}

long parse_pid(const char* name) noexcept {
  long pid = 0;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9') return -1;
    pid = pid * 10 + (*name - '0');
  }
  return pid;
}

bool is_marked(const char* pid, const char* marker) noexcept {
  char path[64] = "/proc/";
  const std::size_t start = std::strlen(path), length = std::strlen(pid);
  if (start + length + sizeof "/environ" > sizeof path) return false;
  std::memcpy(path + start, pid, length);
  std::memcpy(path + start + length, "/environ", sizeof "/environ");
  // Not openat, of which the thread sanitizer does not know: it would take the descriptor for the
  // one that had this number before.
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool found = has_entry(fd, marker);
  close(fd);
  return found;
}

int kill_once(const char* marker) noexcept {
  const int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (proc < 0) return 0;
  alignas(dirent64) char entries[kChunk];
  int killed = 0;
  for (;;) {
    const long bytes = syscall(SYS_getdents64, proc, entries, sizeof entries);
    if (bytes <= 0) break;
    for (long at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const long pid = parse_pid(entry->d_name);
      if (pid <= 0 || pid == getpid() || !is_marked(entry->d_name, marker)) continue;
      if (kill(static_cast<pid_t>(pid), SIGKILL) == 0) ++killed;
    }
  }
  close(proc);
  return killed;
}

}  // namespace

int kill_marked_processes(const char* marker) noexcept {
  int total = 0;
  for (int round = 0; round < kMaxRounds; ++round) {
    const int killed = kill_once(marker);
    if (killed == 0) break;
    total += killed;
  }
  return total;
}

}}  // namespace c10d::v0
