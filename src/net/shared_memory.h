// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/error.h"
#include "c10d/export.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

// A mapping of a sealed memfd: no name in /dev/shm, cannot shrink, gone with its last user. Not
// inherited by fork (MADV_DONTFORK): the child may hold the object, not the memory.
class SharedMapping {
 public:
  SharedMapping(int fd,
                std::size_t bytes);  // takes the descriptor; maps it; throws DistBackendError
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;
  ~SharedMapping();
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  int fd() const noexcept { return fd_; }
  // Takes the pages of this range from the caller's NUMA node, if no process has touched them yet.
  // Its owner does so before any other rank can come to it. Throws DistBackendError
  // (out_of_resources).
  void claim(std::size_t offset, std::size_t bytes) const;

 private:
  int fd_;
  std::size_t size_;
  std::byte* data_;
  pid_t owner_;
};

// Zeroed memory of its own: memfd_create, sealed. A page comes from the NUMA node of the
// process that touches or claims it first. Throws DistBackendError (out_of_resources) with the
// bytes wanted and what to do.
C10D_API std::shared_ptr<SharedMapping> make_shared_memory(std::string_view label,
                                                           std::size_t bytes);

// Whether memory is as make_shared_memory() leaves it: no process can take it away.
bool is_sealed(int fd) noexcept;

struct ShareOptions {
  std::shared_ptr<Store> store;
  std::string key;  // unique in the store for this exchange
  int rank = 0;
  int size = 1;
  std::string token;  // both sides prove to know it
  Deadline deadline{};
  std::vector<int> names{};  // by rank, what messages and failures call it; empty: by its number
  int name(int number) const noexcept {
    return names.empty() ? number : names[static_cast<std::size_t>(number)];
  }
  // Asked now and then in every wait: why it is in vain, or null.
  std::function<std::shared_ptr<const Failure>()> failure;
};

// Collective over `size` ranks of one host, threads or processes: rank 0 gives `mapping` (null
// elsewhere) and every rank returns a mapping of the same memory. The descriptor travels over an
// abstract AF_UNIX socket with a random name; peer uid and token are checked. Throws
// DistTimeoutError naming the ranks that did not arrive, or what options.failure() says.
C10D_API std::shared_ptr<SharedMapping> share_memory(const ShareOptions& options,
                                                     std::shared_ptr<SharedMapping> mapping);

}}  // namespace c10d::v0
