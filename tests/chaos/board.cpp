// SPDX-License-Identifier: BSD-3-Clause
#include "tests/chaos/board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <system_error>

namespace c10d::chaos {

std::string_view to_string(Plant plant) noexcept {
  constexpr std::array<std::string_view, kPlantCount> names = {
      "none", "wrong_result", "wrong_name", "silent", "hang", "crash", "leak", "file", "orphan"};
  return names[static_cast<std::size_t>(plant)];
}

std::int64_t steady_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::milliseconds most) noexcept {
  const timespec limit{.tv_sec = most.count() / 1000, .tv_nsec = most.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void wake(const std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

BoardFile::BoardFile(const std::string& path, bool create) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
  if (fd < 0 || (create && ftruncate(fd, sizeof(Board)) != 0))
    throw std::system_error(errno, std::generic_category(), path);
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
  board_ = create ? new (memory) Board : static_cast<Board*>(memory);
}

BoardFile::~BoardFile() { munmap(board_, sizeof(Board)); }

void write_text(char* to, std::size_t size, std::string_view text) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

}  // namespace c10d::chaos
