// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "src/net/socket.h"
#include "src/net/token.h"
#include "tests/unit/store/kinds.h"
#include "tests/unit/sync/shared_pages.h"

namespace c10d::test { namespace {

using namespace std::chrono_literals;

ShareOptions share(const std::shared_ptr<Store>& store, int rank, int size,
                   Duration patience = 20s) {
  return {.store = store,
          .key = "memory",
          .rank = rank,
          .size = size,
          .token = kToken,
          .deadline = std::chrono::steady_clock::now() + patience};
}

std::atomic<int>& counter(const SharedMapping& mapping) {
  return *reinterpret_cast<std::atomic<int>*>(mapping.data());
}

// What is logged while it lives, at its end: as much as fits into a pipe.
class CapturedLog {
 public:
  explicit CapturedLog(std::string& log) : log_(log), before_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC | O_NONBLOCK), 0);
    dup2(ends_[1], STDERR_FILENO);
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;
  ~CapturedLog() {
    dup2(before_, STDERR_FILENO);
    char bytes[4096];
    for (ssize_t length; (length = read(ends_[0], bytes, sizeof bytes)) > 0;)
      log_.append(bytes, static_cast<std::size_t>(length));
    for (const int fd : {before_, ends_[0], ends_[1]}) close(fd);
  }

 private:
  std::string& log_;
  const int before_;
  int ends_[2] = {-1, -1};
};

TEST(SharedMemory, IsZeroedAndSealed) {
  const auto memory = make_shared_memory("test", 10'000);
  EXPECT_EQ(memory->size(), 10'000U);
  for (std::size_t i = 0; i < memory->size(); ++i) ASSERT_EQ(memory->data()[i], std::byte{0});
  EXPECT_NE(::ftruncate(memory->fd(), 4096), 0);
  EXPECT_NE(::ftruncate(memory->fd(), 1 << 20), 0);
  EXPECT_EQ(::fcntl(memory->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

// Pages come from the NUMA node of whoever is first: so there are none before their owner is.
TEST(SharedMemory, HasNoPagesButThoseThatWereClaimed) {
  const std::size_t page = page_bytes();
  const auto memory = make_shared_memory("test", 8 * page);
  EXPECT_EQ(count_pages(*memory), 0u);
  memory->claim(2 * page, 3 * page);
  memory->claim(0, 0);
  EXPECT_EQ(count_pages(*memory), 3u);
  EXPECT_EQ(add_missing_pages(*memory, memory->data() + 2 * page, 3 * page), 0u);
  EXPECT_EQ(add_missing_pages(*memory, memory->data(), 8 * page), 5u);
  memory->data()[2 * page] = std::byte{7};
  memory->claim(2 * page, page);
  EXPECT_EQ(memory->data()[2 * page], std::byte{7});
  EXPECT_THROW(memory->claim(8 * page, page), DistBackendError);
}

TEST(SharedMemory, NamesTheBytesThatAreNotThere) {
  const Failure failure = failure_of([] { make_shared_memory("test", std::size_t{1} << 60); });
  EXPECT_EQ(failure.code, Code::out_of_resources);
  EXPECT_NE(failure.message.find(std::to_string(std::size_t{1} << 60)), std::string::npos)
      << failure.message;
}

// Who asks for more than the limit on file sizes gets an error, not the signal that the kernel has
// for it.
TEST(SharedMemory, MindsTheLimitOnFileSizes) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(make_shared_memory("fits", 1 << 20)->size(), std::size_t{1} << 20);
  try {
    make_shared_memory("test", (1 << 20) + 1);
    ADD_FAILURE();
  } catch (const DistBackendError& error) {
    EXPECT_EQ(error.code(), Code::out_of_resources);
    EXPECT_NE(error.failure().message.find("ulimit -f"), std::string::npos);
  }
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

TEST(SharedMemory, ThreadsShareIt) {
  constexpr int kRanks = 8;
  const auto store = make_hash_store(20s);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      const auto own = rank == 0 ? make_shared_memory("test", 4096) : nullptr;
      const auto mapping = share_memory(share(store, rank, kRanks), own);
      counter(*mapping) += 1 << rank;
      store->barrier("added", kRanks);
      EXPECT_EQ(counter(*mapping), (1 << kRanks) - 1);
    });
}

TEST(SharedMemory, ProcessesShareIt) {
  const TemporaryFile file;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto mapping = share_memory(share(make_file_store(file.path(), 0, 20s), 1, 2), nullptr);
    counter(*mapping) = 42;
    _exit(0);
  }
  const auto mapping = share_memory(share(make_file_store(file.path(), 0, 20s), 0, 2),
                                    make_shared_memory("test", 4096));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(counter(*mapping), 42);
}

// The child has a hole there, and what it maps next may be given that place.
TEST(SharedMemory, AForkedChildThatDropsItKeepsWhatItMappedThere) {
  auto memory = make_shared_memory("test", page_bytes());
  memory->data()[0] = std::byte{7};
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(100);  // should it hang
    std::byte* const place = memory->data();
    if (::mmap(place, page_bytes(), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != place)
      _exit(1);
    memory.reset();
    place[0] = std::byte{8};  // SIGSEGV, were it gone
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory->data()[0], std::byte{7});
}

TEST(SharedMemory, NamesTheRanksThatDidNotCome) {
  const auto store = make_hash_store(20s);
  std::jthread rank2([&] {
    try {
      share_memory(share(store, 2, 4), nullptr);
    } catch (const DistError& error) {
      ADD_FAILURE() << "rank 2: " << error.what();
    }
  });
  const Failure failure =
      failure_of([&] { share_memory(share(store, 0, 4, 10s), make_shared_memory("test", 4096)); });
  EXPECT_EQ(failure.code, Code::timed_out);
  EXPECT_NE(failure.message.find("rank(s) 1, 3 "), std::string::npos) << failure.message;
  EXPECT_EQ(failure.rank, 1);
}

TEST(SharedMemory, RankZeroMissingIsNamed) {
  const auto store = make_hash_store(20s);
  const Failure failure = failure_of([&] { share_memory(share(store, 1, 2, 100ms), nullptr); });
  EXPECT_EQ(failure.code, Code::timed_out);
  EXPECT_EQ(failure.rank, 0);
}

TEST(SharedMemory, AStrangerAndASecondRankAreTurnedAwayAndHurtNobody) {
  const auto store = make_hash_store(20s);
  std::jthread rank0([&] {
    share_memory(share(store, 0, 3), make_shared_memory("test", 4096));
    store->set("done", "");
  });
  ShareOptions stranger = share(store, 1, 3);
  stranger.token = "another";
  EXPECT_EQ(failure_of([&] { share_memory(stranger, nullptr); }).code, Code::not_authenticated);
  EXPECT_NE(share_memory(share(store, 1, 3), nullptr), nullptr);
  EXPECT_EQ(failure_of([&] { share_memory(share(store, 1, 3), nullptr); }).code, Code::mismatch);
  EXPECT_EQ(failure_of([&] { share_memory(share(store, 7, 9), nullptr); }).code, Code::mismatch);
  EXPECT_NE(share_memory(share(store, 2, 3), nullptr), nullptr);
  store->get("done");
}

// An AF_UNIX name as rank 0 has one.
struct UnixAddress {
  explicit UnixAddress(const std::string& name)
      : length(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) {
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  const socklen_t length;
};

Fd unix_listener(const UnixAddress& address) {
  Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(listener.get(), address.get(), address.length), 0);
  EXPECT_EQ(listen(listener.get(), 0), 0);
  return listener;
}

Fd unix_visitor(const UnixAddress& address) {
  Fd visitor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(visitor.get(), address.get(), address.length), 0);
  return visitor;
}

// Rank 0 gives each of them two seconds: all at once.
TEST(SharedMemory, SilentStrangersHoldUpNobody) {
  constexpr std::size_t kStrangers = 20;
  const auto store = make_hash_store(20s);
  const auto start = std::chrono::steady_clock::now();
  std::jthread rank0(
      [&] { EXPECT_NO_THROW(share_memory(share(store, 0, 2), make_shared_memory("test", 4096))); });
  const UnixAddress offer(store->get("memory"));
  std::vector<Fd> strangers;
  while (strangers.size() < kStrangers) strangers.push_back(unix_visitor(offer));
  EXPECT_NO_THROW(share_memory(share(store, 1, 2), nullptr));
  rank0.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}

// More than rank 0 keeps at a time.
TEST(SharedMemory, OfManySilentStrangersTheOldestGo) {
  constexpr std::size_t kStrangers = 200;
  const auto store = make_hash_store(20s);
  std::jthread rank0(
      [&] { EXPECT_NO_THROW(share_memory(share(store, 0, 2), make_shared_memory("test", 4096))); });
  const UnixAddress offer(store->get("memory"));
  std::vector<Fd> strangers;
  while (strangers.size() < kStrangers) strangers.push_back(unix_visitor(offer));
  EXPECT_NO_THROW(share_memory(share(store, 1, 2), nullptr));
}

// A member that is stopped on its way is the only one that does not arrive, and no stranger.
TEST(SharedMemory, OnlyTheRankThatFellSilentDidNotCome) {
  const auto store = make_hash_store(20s);
  std::string log;
  {
    const CapturedLog captured(log);
    std::jthread rank0([&] {
      const Failure failure = failure_of(
          [&] { share_memory(share(store, 0, 4, 3s), make_shared_memory("test", 4096)); });
      EXPECT_EQ(failure.code, Code::timed_out);
      EXPECT_EQ(failure.rank, 1);
      EXPECT_NE(failure.message.find("rank(s) 1 did not arrive"), std::string::npos)
          << failure.message;
    });
    const Fd silent = unix_visitor(UnixAddress(store->get("memory")));
    const std::string hello = std::string("c10m\1\0\0\0", 8) + std::string(kNonceBytes, 'n');
    ASSERT_EQ(send(silent.get(), hello.data(), hello.size(), 0),
              static_cast<ssize_t>(hello.size()));
    char answer[256];
    ASSERT_GT(recv(silent.get(), answer, sizeof answer, 0), 0);
    for (const int rank : {2, 3})
      EXPECT_NO_THROW(share_memory(share(store, rank, 4), nullptr)) << rank;
    rank0.join();
  }
  EXPECT_EQ(log, "");
}

TEST(SharedMemory, OfAnotherUsersConnectionsOneLineIsLogged) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr int kConnections = 50;
  const auto store = make_hash_store(20s);
  std::string log;
  {
    const CapturedLog captured(log);
    std::jthread rank0([&] {
      EXPECT_NO_THROW(share_memory(share(store, 0, 2), make_shared_memory("test", 4096)));
    });
    const UnixAddress offer(store->get("memory"));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      if (setuid(65534) != 0) _exit(1);
      for (int i = 0; i < kConnections; ++i) {
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (connect(fd, offer.get(), offer.length) != 0) _exit(2);
        char nothing;
        if (read(fd, &nothing, 1) > 0) _exit(3);
        close(fd);
      }
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_NO_THROW(share_memory(share(store, 1, 2), nullptr));
  }
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_NE(log.find("another user's process"), std::string::npos) << log;
}

// The write end of a pipe that nobody holds any more shows as the end of the pipe.
TEST(SharedMemory, EveryDescriptorThatAStrangerSendsIsClosed) {
  const auto store = make_hash_store(20s);
  std::jthread rank0(
      [&] { EXPECT_NO_THROW(share_memory(share(store, 0, 2), make_shared_memory("test", 4096))); });
  const UnixAddress offer(store->get("memory"));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const Fd stranger(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(stranger.get(), offer.get(), offer.length), 0);
  char letter = 'x';
  iovec part{&letter, 1};
  const int sent[2] = {write_end.get(), write_end.get()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof sent)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof sent);
  std::memcpy(CMSG_DATA(header), sent, sizeof sent);
  ASSERT_EQ(sendmsg(stranger.get(), &message, 0), 1);
  write_end.reset();
  EXPECT_NO_THROW(share_memory(share(store, 1, 2), nullptr));  // whose turn is after the stranger's
  rank0.join();
  EXPECT_EQ(read(read_end.get(), &letter, 1), 0);
}

// As rank 0 does with who says nothing for two seconds.
TEST(SharedMemory, ARankThatWasTakenForAStrangerComesAgain) {
  const auto store = make_hash_store(20s);
  const auto detour = make_hash_store(20s);
  const std::string name = "c10d-test-detour-" + std::to_string(getpid());
  const Fd listener = unix_listener(UnixAddress(name));
  detour->set("memory", name);
  std::jthread rank0(
      [&] { EXPECT_NO_THROW(share_memory(share(store, 0, 2), make_shared_memory("test", 4096))); });
  std::jthread rank1([&] { EXPECT_NO_THROW(share_memory(share(detour, 1, 2), nullptr)); });
  const Fd visitor(accept(listener.get(), nullptr, nullptr));
  detour->set("memory", store->get("memory"));
}

TEST(SharedMemory, ARankZeroThatIsGoneIsNoticed) {
  const auto store = make_hash_store(20s);
  const std::string name = "c10d-test-gone-" + std::to_string(getpid());
  Fd listener = unix_listener(UnixAddress(name));
  store->set("memory", name);
  std::jthread rank1([&] {
    const Failure failure = failure_of([&] { share_memory(share(store, 1, 2), nullptr); });
    EXPECT_EQ(failure.code, Code::link_lost);
    EXPECT_EQ(failure.rank, 0);
  });
  const Fd visitor(accept(listener.get(), nullptr, nullptr));
  listener.reset();
}

// A rank 0 that takes no connection: whoever waits for it still learns that the world is broken.
TEST(SharedMemory, AFullBacklogHidesNoFailure) {
  const auto store = make_hash_store(20s);
  const std::string name = "c10d-test-backlog-" + std::to_string(getpid());
  const UnixAddress where(name);
  const Fd listener = unix_listener(where);
  std::vector<Fd> visitors;
  do {
    visitors.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (connect(visitors.back().get(), where.get(), where.length) == 0);
  ASSERT_EQ(errno, EAGAIN);
  store->set("memory", name);
  ShareOptions options = share(store, 1, 2);
  options.failure = [] {
    return std::make_shared<const Failure>(Failure{.code = Code::peer_died, .rank = 0});
  };
  EXPECT_EQ(failure_of([&] { share_memory(options, nullptr); }).code, Code::peer_died);
}

}}  // namespace c10d::test
