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
#include <utility>

#include "c10d/parallel/checkpoint.h"
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

std::string holder(int descriptor) {
  std::array<char, 300> text{};
  const ssize_t size = pread(descriptor, text.data(), text.size(), 0);
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : "unknown";
}

}  // namespace

FolderLock::FolderLock(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor), owner_(getpid()) {
  const std::string name = own_name();
  // Who cannot write it is "unknown".
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
  for (;;) {
    const int file = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0) return nullptr;
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
      const bool is_held = errno == EWOULDBLOCK;
      const std::string by = is_held ? holder(file) : "";
      close(file);
      if (!is_held) return nullptr;
      refuse_file(folder, 0,
                  fmt::format("another job ({}) writes to this checkpoint folder; give every job a "
                              "folder of its own",
                              by));
    }
    // Whoever held it until now may have removed its name: then it protects nothing.
    struct stat here {};
    const bool is_current = fstat(file, &status) == 0 && lstat(path.c_str(), &here) == 0 &&
                            place_of(status) == place_of(here);
    if (!is_current) {
      close(file);
      continue;
    }
    std::shared_ptr<FolderLock> lock(new FolderLock(path, file));
    known = lock;
    return lock;
  }
}

}}}  // namespace c10d::v0::parallel
