// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace c10d { inline namespace v0 { namespace parallel {

// That this process writes checkpoints to a folder, for others that want to. Held by the file
// "lock" in it, which goes with this; it ends with the process, however that ends. Within a process
// it is shared: two that save there know of each other.
class FolderLock {
 public:
  // Throws CheckpointError that names the host and process of another job that holds it, or why the
  // file cannot be opened. Null where the file system has no locks.
  static std::shared_ptr<FolderLock> take(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  FolderLock(std::string path, int descriptor);

  const std::string path_;
  const int descriptor_;
  const pid_t owner_;  // a forked child shares the file, and leaves it alone
};

}}}  // namespace c10d::v0::parallel
