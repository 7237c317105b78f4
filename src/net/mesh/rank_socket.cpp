// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/mesh/rank_socket.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <utility>

#include "src/base/mutex.h"

namespace c10d { inline namespace v0 {
namespace {

// The connections between ranks of this process. A forked child keeps none: as long as it lives
// nobody would see the end of its parent. There their numbers stay taken, for objects own them.
class OpenConnections {
 public:
  OpenConnections() { ::pthread_atfork(hold, release, let_go); }
  static OpenConnections& of_process() {
    static auto& all = *new OpenConnections();
    return all;
  }
  void add(int fd) {
    MutexLock lock(mutex_);
    fds_.insert(fd);
  }
  void remove(int fd) {
    MutexLock lock(mutex_);
    fds_.erase(fd);
  }

 private:
  static void hold() C10D_THREAD_ANNOTATION(no_thread_safety_analysis) {
    of_process().mutex_.lock();
  }
  static void release() C10D_THREAD_ANNOTATION(no_thread_safety_analysis) {
    of_process().mutex_.unlock();
  }
  static void let_go() C10D_THREAD_ANNOTATION(no_thread_safety_analysis) {
    for (const int fd : of_process().fds_) ::dup3(of_process().nothing_, fd, O_CLOEXEC);
    of_process().mutex_.unlock();
  }

  const int nothing_ = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  Mutex mutex_;  // held across a fork
  std::set<int> fds_ C10D_GUARDED_BY(mutex_);
};

}  // namespace

RankSocket::RankSocket(Fd fd) : fd_(std::move(fd)) { OpenConnections::of_process().add(fd_.get()); }

RankSocket::~RankSocket() {
  if (!fd_) return;
  ::shutdown(fd_.get(), SHUT_RDWR);  // for a child that was forked before it was known here
  OpenConnections::of_process().remove(fd_.get());
}

}}  // namespace c10d::v0
