// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "c10d/error.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Failure out_of_memory(std::string_view label, std::size_t bytes, std::string_view call, int error) {
  return {.code = Code::out_of_resources,
          .message =
              fmt::format("no shared memory of {} bytes for {}: {}: {}; free memory, or raise the "
                          "memory limit of the container or cgroup",
                          bytes, label, call, error_text(error))};
}

// What a memfd has no pages for ends in the kernel's OOM killer and not in an error, so what cannot
// be there is refused before.
std::uint64_t available_memory() {
  std::uint64_t available = std::numeric_limits<std::uint64_t>::max();
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kib) == 1) available = kib * 1024;
  }
  std::uint64_t limit = 0;  // "max", when there is none
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit) available = std::min(available, limit);
  return available;
}

}  // namespace

bool is_sealed(int fd) noexcept {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals;
}

SharedMapping::SharedMapping(int fd, std::size_t bytes)
    : fd_(fd), size_(bytes), data_(nullptr), owner_(::getpid()) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    ::close(fd);
    throw_failure(out_of_memory("a mapping", bytes, "mmap", error));
  }
  ::madvise(address, bytes, MADV_DONTFORK);
  data_ = static_cast<std::byte*>(address);
}

SharedMapping::~SharedMapping() {
  // In a forked child these addresses belong to whatever it has mapped there since.
  if (::getpid() == owner_) ::munmap(data_, size_);
  ::close(fd_);
}

void SharedMapping::claim(std::size_t offset, std::size_t bytes) const {
  if (bytes == 0) return;
  int result = 0;
  do {
    result = ::fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw_failure(out_of_memory("a rank's part", bytes, "fallocate", errno));
}

std::shared_ptr<SharedMapping> make_shared_memory(std::string_view label, std::size_t bytes) {
  if (bytes == 0) throw InvalidArgument("make_shared_memory: 0 bytes");
  if (const std::uint64_t available = available_memory(); bytes > available)
    throw_failure(out_of_memory(label, bytes, fmt::format("{} bytes are free", available), ENOMEM));
  // Beyond it ftruncate() sends a signal that ends the process.
  if (rlimit limit{}; ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur)
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format("no shared memory of {} bytes for {}: files may have {} "
                                          "bytes at most; raise ulimit -f",
                                          bytes, label, limit.rlim_cur)});
  Fd fd(::memfd_create(std::string(label).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_failure(out_of_memory(label, bytes, "memfd_create", errno));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    throw_failure(out_of_memory(label, bytes, "ftruncate", errno));
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    throw_failure(out_of_memory(label, bytes, "F_ADD_SEALS", errno));
  return std::make_shared<SharedMapping>(fd.release(), bytes);
}

}}  // namespace c10d::v0
