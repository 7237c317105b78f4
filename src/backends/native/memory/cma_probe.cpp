// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/memory/cma_probe.h"

#include <sys/random.h>
#include <unistd.h>

#include "src/backends/native/memory/cma.h"

namespace c10d { inline namespace v0 { namespace native {

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
