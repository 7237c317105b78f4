// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/peer_memory.h"

#include <sys/random.h>
#include <unistd.h>

#include "src/backends/native/cma.h"

namespace c10d::inline v0::native {

// With pid namespaces, the pid may be another process's: hence the word.
bool PeerMemory::reachable() noexcept {
  if (access_ == Access::unknown) {
    std::uint64_t word = 0;
    const bool same = theirs_.word != 0 &&
                      read_process(theirs_.pid, theirs_.address, &word, sizeof word) == 0 &&
                      word == theirs_.word;
    access_ = same ? Access::granted : Access::denied;
  }
  return access_ == Access::granted;
}

bool PeerMemory::read(void* to, std::uint64_t from, std::size_t bytes) noexcept {
  if (!reachable()) return false;
  if (read_process(theirs_.pid, from, to, bytes) != 0) access_ = Access::denied;
  return access_ == Access::granted;
}

void introduce(Identity& own, std::uint64_t& word) noexcept {
  if (::getrandom(&word, sizeof word, GRND_NONBLOCK) != sizeof word) word = 0;  // not reachable
  own = {getpid(), reinterpret_cast<std::uint64_t>(&word), word};
}

}  // namespace c10d::inline v0::native
