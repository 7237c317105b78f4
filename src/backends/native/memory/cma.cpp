// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/memory/cma.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>

namespace c10d { inline namespace v0 { namespace native {

int read_process(std::int64_t pid, std::uint64_t address, void* to, std::size_t bytes) noexcept {
  auto* out = static_cast<std::byte*>(to);
  while (bytes != 0) {
    const iovec local{out, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = ::process_vm_readv(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0);
    if (got < 0) return errno;
    if (got == 0) return EFAULT;
    out += got;
    address += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return 0;
}

int write_process(std::int64_t pid, const iovec& target, const void* from,
                  std::size_t bytes) noexcept {
  const iovec local{const_cast<void*>(from), bytes};  // only read
  const ssize_t put = ::process_vm_writev(static_cast<pid_t>(pid), &local, 1, &target, 1, 0);
  if (put < 0) return errno;
  return static_cast<std::size_t>(put) == bytes ? 0 : EFAULT;
}

void introduce(Identity& own, std::uint64_t& word) noexcept {
  if (::getrandom(&word, sizeof word, GRND_NONBLOCK) != sizeof word) word = 0;  // not readable
  own = {getpid(), reinterpret_cast<std::uint64_t>(&word), word};
}

// With pid namespaces, the pid may be another process's: hence the word.
bool is_readable(const Identity& theirs) noexcept {
  std::uint64_t word = 0;
  return theirs.word != 0 && read_process(theirs.pid, theirs.address, &word, sizeof word) == 0 &&
         word == theirs.word;
}

}}}  // namespace c10d::v0::native
