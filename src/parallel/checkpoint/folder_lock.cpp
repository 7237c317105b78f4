// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "src/parallel/checkpoint/file_system.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

using Place = std::pair<dev_t, ino_t>;

Place place_of(const struct stat& status) { return {status.st_dev, status.st_ino}; }

std::string own_name() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("host {}, pid {}", host.data(), getpid());
}

// " (host, pid)", or nothing where it has not been written yet.
std::string holder(int descriptor) {
  std::array<char, 300> text{};
  const ssize_t size = pread(descriptor, text.data(), text.size(), 0);
  return size > 0
             ? fmt::format(" ({})", std::string_view(text.data(), static_cast<std::size_t>(size)))
             : "";
}

[[noreturn]] void cannot(std::string_view what, const std::string& path, int error) {
  refuse_file(path, 0,
              "{} failed: {}; a job that saves locks this file: remove it if no job "
              "writes to the folder",
              what, std::generic_category().message(error));
}

int open_lock(const std::string& path) {
  for (;;) {
    const int file = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file >= 0) return file;
    if (errno != EINTR) cannot("open", path, errno);
  }
}

// Zero, or why not.
int try_lock(int file) {
  while (flock(file, LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

bool has_no_locks(int error) { return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP; }

}  // namespace

FolderLock::FolderLock(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor), owner_(getpid()) {
  const std::string name = own_name();
  // A name that cannot be written, as on a full disk, is missing from the error of the other job.
  if (ftruncate(descriptor_, 0) == 0)
    static_cast<void>(!pwrite(descriptor_, name.data(), name.size(), 0));
}

FolderLock::~FolderLock() {
  if (owner_ == getpid()) unlink(path_.c_str());
  close(descriptor_);
}

std::shared_ptr<FolderLock> FolderLock::take(const std::string& folder) {
  static std::mutex mutex;
  static auto& all = *new std::map<Place, std::weak_ptr<FolderLock>>();
  const std::lock_guard guard(mutex);
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return nullptr;  // who writes there says why
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<FolderLock>& known = all[place_of(status)];
  if (auto lock = known.lock()) return lock;

  const std::string path = folder + "/lock";
  // Another turn when the job that held it until now has removed its name: it protects nothing.
  constexpr int kTurns = 100;
  for (int turn = 0; turn < kTurns; ++turn) {
    const int file = open_lock(path);
    if (const int error = try_lock(file); error != 0) {
      const std::string by = holder(file);
      close(file);
      if (has_no_locks(error)) return nullptr;
      if (error != EWOULDBLOCK) cannot("flock", path, error);
      refuse_file(folder, 0,
                  "another job{} writes to this checkpoint folder; give every job a "
                  "folder of its own",
                  by);
    }
    struct stat here {};
    if (fstat(file, &status) == 0 && lstat(path.c_str(), &here) == 0 &&
        place_of(status) == place_of(here)) {
      std::shared_ptr<FolderLock> taken(new FolderLock(path, file));
      known = taken;
      return taken;
    }
    close(file);
  }
  refuse_file(path, 0,
              "was removed {} times while it was locked; does "
              "another program remove files from the folder?",
              kTurns);
}

}}}  // namespace c10d::v0::parallel
