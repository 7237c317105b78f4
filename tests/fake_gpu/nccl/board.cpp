// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/nccl/board.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

namespace fake_nccl {
namespace {

// Files that this process made and that some rank may still look for, and what is open here.
struct Boards {
  std::mutex mutex;
  std::map<std::string, int> made;
  std::map<std::string, std::weak_ptr<Board>> open;
};
Boards& boards() {
  static Boards& all = *new Boards;
  return all;
}

// The path, and a word that tells this id from a later one.
constexpr std::size_t kTokenAt = 64;
std::string key_of(const nccl::UniqueId& id) { return {id.internal, sizeof id.internal}; }

struct Header {
  std::uint64_t token;
};
constexpr std::size_t kHeaderBytes = 4096;

std::size_t bytes_of(int size) {
  const auto n = static_cast<std::size_t>(size);
  return kHeaderBytes + n * sizeof(Member) + n * n * sizeof(Box);
}

}  // namespace

bool Board::make(nccl::UniqueId& id) {
  const int file = memfd_create("nccl", MFD_CLOEXEC);
  if (file < 0) return false;
  id = {};
  std::snprintf(id.internal, kTokenAt, "/proc/%d/fd/%d", getpid(), file);
  const std::uint64_t token =
      (std::uint64_t{std::random_device()()} << 32) | std::random_device()();
  std::memcpy(id.internal + kTokenAt, &token, sizeof token);
  const Header header{token};
  if (pwrite(file, &header, sizeof header, 0) != sizeof header) {
    close(file);
    return false;
  }
  Boards& all = boards();
  const std::lock_guard lock(all.mutex);
  all.made[key_of(id)] = file;
  return true;
}

std::shared_ptr<Board> Board::open(const nccl::UniqueId& id, int size) {
  Boards& all = boards();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<Board>& known = all.open[key_of(id)];
  if (std::shared_ptr<Board> board = known.lock()) return board->size() == size ? board : nullptr;
  if (id.internal[0] != '/' || memchr(id.internal, 0, kTokenAt) == nullptr) return nullptr;
  const int file = ::open(id.internal, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  struct stat about {};
  Header header{};
  std::uint64_t token = 0;
  std::memcpy(&token, id.internal + kTokenAt, sizeof token);
  const std::size_t bytes = bytes_of(size);
  void* memory = MAP_FAILED;
  if (pread(file, &header, sizeof header, 0) == sizeof header && header.token == token &&
      fstat(file, &about) == 0 &&
      (about.st_size >= off_t(bytes) || ftruncate(file, off_t(bytes)) == 0)) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  std::shared_ptr<Board> board(new Board(memory, bytes, size));
  known = board;
  return board;
}

Board::Board(void* memory, std::size_t bytes, int size)
    : memory_(memory),
      bytes_(bytes),
      size_(size),
      members_(reinterpret_cast<Member*>(static_cast<std::byte*>(memory) + kHeaderBytes)),
      boxes_(reinterpret_cast<Box*>(members_ + size)),
      processes_(static_cast<std::size_t>(size), -1),
      is_dead_(static_cast<std::size_t>(size), false) {}

Board::~Board() {
  for (const int process : processes_) {
    if (process >= 0) close(process);
  }
  munmap(memory_, bytes_);
}

bool Board::have_all_joined() const {
  for (int rank = 0; rank < size_; ++rank) {
    if (members_[rank].has_joined.load(std::memory_order_acquire) == 0) return false;
  }
  // Nobody looks for the file any more.
  Boards& all = boards();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.open, [](const auto& one) { return one.second.expired(); });
  for (const auto& [key, board] : all.open) {
    if (board.lock().get() != this) continue;
    if (const auto found = all.made.find(key); found != all.made.end()) {
      close(found->second);
      all.made.erase(found);
    }
  }
  return true;
}

bool Board::is_gone(int rank) {
  return members_[rank].left.load(std::memory_order_acquire) != kIsThere || is_gone_for_good(rank);
}

bool Board::is_gone_for_good(int rank) {
  Member& other = members_[rank];
  if (other.has_joined.load(std::memory_order_acquire) == 0) return false;
  if (other.left.load(std::memory_order_acquire) == kHasLeft) return true;
  if (other.pid == getpid()) return false;
  const std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(rank);
  if (is_dead_[at]) return true;
  if (processes_[at] < 0) {
    processes_[at] = static_cast<int>(syscall(SYS_pidfd_open, other.pid, 0));
    if (processes_[at] < 0) return is_dead_[at] = errno == ESRCH;
  }
  // Readable also where nobody has waited for it yet.
  pollfd asked{processes_[at], POLLIN, 0};
  is_dead_[at] = poll(&asked, 1, 0) > 0;
  return is_dead_[at];
}

int Board::duplicate_of(int rank) const {
  const Member& mine = members_[rank];
  for (int other = 0; other < size_; ++other) {
    const Member& its = members_[other];
    if (other != rank && its.device == mine.device && std::strcmp(its.host, mine.host) == 0) {
      return other;
    }
  }
  return -1;
}

bool Board::has_duplicates() const {
  for (int rank = 0; rank < size_; ++rank) {
    if (duplicate_of(rank) >= 0) return true;
  }
  return false;
}

std::string host_name() {
  if (const char* name = std::getenv("NCCL_HOSTID")) return name;
  char name[64] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace fake_nccl
