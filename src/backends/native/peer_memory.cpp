// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/peer_memory.h"

#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

namespace c10d::inline v0::native {
namespace {

bool read_process(std::int64_t pid, void* to, std::uint64_t from, std::size_t bytes) noexcept {
  std::size_t done = 0;
  while (done < bytes) {
    const iovec here{static_cast<std::byte*>(to) + done, bytes - done};
    const iovec there{reinterpret_cast<void*>(from + done), bytes - done};
    const ssize_t got = ::process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

// With pid namespaces, the pid may be another process's: hence the word.
bool PeerMemory::reachable() noexcept {
  if (access_ == Access::unknown) {
    std::uint64_t word = 0;
    const bool same = theirs_.word != 0 &&
                      read_process(theirs_.pid, &word, theirs_.address, sizeof word) &&
                      word == theirs_.word;
    access_ = same ? Access::granted : Access::denied;
  }
  return access_ == Access::granted;
}

bool PeerMemory::read(void* to, std::uint64_t from, std::size_t bytes) noexcept {
  if (!reachable()) return false;
  if (!read_process(theirs_.pid, to, from, bytes)) access_ = Access::denied;
  return access_ == Access::granted;
}

void introduce(Identity& own, std::uint64_t& word) noexcept {
  if (::getrandom(&word, sizeof word, GRND_NONBLOCK) != sizeof word) word = 0;  // not reachable
  own = {getpid(), reinterpret_cast<std::uint64_t>(&word), word};
}

}  // namespace c10d::inline v0::native
