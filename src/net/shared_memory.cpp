// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "c10d/error.h"
#include "src/core/log.h"
#include "src/net/socket.h"
#include "src/net/token.h"

namespace c10d::inline v0 {

namespace {

using std::chrono::steady_clock;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr auto kStrangerPatience = std::chrono::seconds(2);
constexpr std::size_t kHelloBytes = 8 + kNonceBytes;

// What rank 0 says last. The descriptor rides on `accepted`.
enum Verdict : char { accepted = 'A', duplicate_rank = 'D', unknown_token = 'T' };

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

// The waits of one exchange.
class Patience {
 public:
  explicit Patience(const ShareOptions& options) : options_(options) {}

  bool over() const { return steady_clock::now() >= options_.deadline; }
  // Until when to wait at a time.
  Deadline slice(Deadline until = Deadline::max()) const {
    return std::min({options_.deadline, next_look_, until});
  }
  // Throws why waiting is in vain.
  void look() {
    if (steady_clock::now() < next_look_) return;
    next_look_ = steady_clock::now() + kLook;
    if (!options_.failure) return;
    if (const auto failure = options_.failure()) throw_failure(*failure);
  }
  // False when the deadline, or `until`, passed.
  bool wait_for_input(int fd, Deadline until = Deadline::max()) {
    while (!wait_for(fd, POLLIN, slice(until))) {
      look();
      if (over() || steady_clock::now() >= until) return false;
    }
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds kLook{100};
  const ShareOptions& options_;
  Deadline next_look_ = steady_clock::now() + kLook;
};

Failure rank_zero_lost(const ShareOptions& options, std::string_view detail) {
  return {.code = Code::link_lost,
          .message =
              fmt::format("rank 0 went away while rank {} waited for the shared memory '{}' ({})",
                          options.rank, options.key, detail),
          .rank = 0};
}

// One message each way per step: SOCK_SEQPACKET keeps the boundaries.
bool send_message(int fd, std::string_view bytes, int descriptor = -1) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

// Empty: the other side closed, or the deadline, or `until`, passed.
std::string receive_message(int fd, Patience& patience, Deadline until = Deadline::max(),
                            Fd* descriptor = nullptr) {
  if (!patience.wait_for_input(fd, until)) return {};
  char buffer[256];
  iovec part{buffer, sizeof buffer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received = 0;
  do {
    received = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received <= 0) return {};
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    // `control` is padded: a second descriptor, which nobody asked for, fits in.
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int value = -1;
      std::memcpy(&value, CMSG_DATA(header) + i * sizeof value, sizeof value);
      Fd taken(value);
      if (descriptor != nullptr && !*descriptor) *descriptor = std::move(taken);
    }
  }
  return {buffer, static_cast<std::size_t>(received)};
}

bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

// The leading zero byte makes the name abstract: nothing in the file system, gone with the socket.
socklen_t abstract_address(std::string_view name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

Fd unix_socket(int flags) {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!fd)
    throw_failure({.code = Code::out_of_resources,
                   .message = "socket(AF_UNIX): " + error_text(errno) + "; raise ulimit -n"});
  return fd;
}

std::string proof(const ShareOptions& options, std::string_view side, std::string_view hello,
                  std::string_view server_nonce) {
  std::string text = fmt::format("c10d memory {} {}\n", side, options.key);
  text += hello;
  text += server_nonce;
  return hmac_sha256(options.token, text);
}

std::string hello_of(int rank) {
  char head[8] = {'c', '1', '0', 'm'};
  std::memcpy(head + 4, &rank, 4);
  return std::string(head, sizeof head) + random_bytes(kNonceBytes);
}

std::string list_ranks(const std::vector<bool>& served) {
  std::string ranks;
  for (std::size_t rank = 1; rank < served.size(); ++rank)
    if (!served[rank]) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  return ranks;
}

// Serves one connection. Strangers are turned away and never disturb the others.
void serve(const ShareOptions& options, Patience& patience, int memory, int fd,
           std::vector<bool>& served) {
  if (!same_user(fd)) return log(LogLevel::warn, "shared memory: refused another user's process");
  const Deadline until = steady_clock::now() + kStrangerPatience;
  const std::string hello = receive_message(fd, patience, until);
  if (hello.size() != kHelloBytes || hello.compare(0, 4, "c10m") != 0) return;
  std::int32_t rank = 0;
  std::memcpy(&rank, hello.data() + 4, 4);
  const std::string nonce = random_bytes(kNonceBytes);
  if (!send_message(fd, nonce + proof(options, "server", hello, nonce))) return;
  if (!equal_secrets(receive_message(fd, patience, until),
                     proof(options, "client", hello, nonce))) {
    send_message(fd, std::string(1, unknown_token));
    return log(LogLevel::warn,
               "shared memory: refused a process that does not know the job's token");
  }
  const auto slot = static_cast<std::size_t>(rank);
  if (rank < 1 || slot >= served.size() || served[slot]) {
    send_message(fd, std::string(1, duplicate_rank));
    return log(LogLevel::warn, "shared memory: refused a second rank {}", rank);
  }
  if (send_message(fd, std::string(1, accepted), memory)) served[slot] = true;
}

Failure did_not_come(const ShareOptions& options, const std::vector<bool>& served) {
  const auto first = std::find(served.begin(), served.end(), false) - served.begin();
  return {.code = Code::timed_out,
          .message = fmt::format("rank(s) {} did not come for the shared memory '{}'",
                                 list_ranks(served), options.key),
          .rank = static_cast<int>(first)};
}

void offer(const ShareOptions& options, int memory) {
  const std::string name = "c10d-" + to_hex(random_bytes(16));
  Fd listener = unix_socket(SOCK_NONBLOCK);
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), options.size) != 0)
    throw_failure({.code = Code::out_of_resources,
                   .message = "cannot listen on an AF_UNIX socket: " + error_text(errno)});
  // A moment also for one that is late: the others look for it.
  options.store->set(options.key, name,
                     std::max<Duration>(options.deadline - steady_clock::now(), kStrangerPatience));
  Patience patience(options);
  std::vector<bool> served(static_cast<std::size_t>(options.size), false);
  served[0] = true;
  while (std::find(served.begin(), served.end(), false) != served.end()) {
    patience.look();
    if (patience.over()) throw_failure(did_not_come(options, served));
    if (!wait_for(listener.get(), POLLIN, patience.slice())) continue;
    Fd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (peer) {
      serve(options, patience, memory, peer.get(), served);
    } else if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) {
      throw_failure({.code = Code::out_of_resources,
                     .message = "accept(AF_UNIX): " + error_text(errno) + "; raise ulimit -n"});
    }
  }
}

std::string name_from_store(const ShareOptions& options, Patience& patience) {
  while (true) {
    const Duration left = patience.slice() - steady_clock::now();
    try {
      return options.store->get(options.key, std::max(Duration(1), left));
    } catch (const DistTimeoutError&) {
    }
    patience.look();
    if (patience.over())
      throw_failure({.code = Code::timed_out,
                     .message = fmt::format("rank 0 did not offer the shared memory '{}' to rank "
                                            "{}",
                                            options.key, options.rank),
                     .rank = 0});
  }
}

std::shared_ptr<SharedMapping> map_received(const ShareOptions& options, Fd memory) {
  struct stat status {};
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(memory.get(), &status) != 0 ||
      status.st_size <= 0)
    throw_failure({.code = Code::corrupt,
                   .message = fmt::format("rank 0 sent something for '{}' that is no sealed memory",
                                          options.key),
                   .rank = 0});
  return std::make_shared<SharedMapping>(memory.release(),
                                         static_cast<std::size_t>(status.st_size));
}

Failure no_memory_in_time(const ShareOptions& options) {
  return {.code = Code::timed_out,
          .message = fmt::format("rank 0 did not hand the shared memory '{}' to rank {}",
                                 options.key, options.rank),
          .rank = 0};
}

Fd connect_to_offer(const ShareOptions& options, Patience& patience) {
  sockaddr_un address;
  const socklen_t length = abstract_address(name_from_store(options, patience), address);
  Fd fd = unix_socket(0);
  for (;;) {
    // A full backlog makes connect() wait, no longer than the send timeout.
    const int left = poll_timeout(patience.slice());
    const timeval limit = {left / 1000, left % 1000 * 1000 + 1};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) break;
    if (errno != EAGAIN && errno != EINTR)
      throw_failure(rank_zero_lost(options, error_text(errno)));
    patience.look();
    if (patience.over()) throw_failure(no_memory_in_time(options));
  }
  if (!same_user(fd.get()))
    throw_failure(
        {.code = Code::not_authenticated,
         .message = fmt::format("another user's process offers the memory '{}'", options.key)});
  return fd;
}

// Null: the connection ended without a verdict.
std::shared_ptr<SharedMapping> try_to_fetch(const ShareOptions& options, Patience& patience) {
  const Fd fd = connect_to_offer(options, patience);
  const std::string hello = hello_of(options.rank);
  if (!send_message(fd.get(), hello)) return nullptr;
  const std::string answer = receive_message(fd.get(), patience);
  if (answer.empty()) return nullptr;
  const std::string_view nonce = std::string_view(answer).substr(0, kNonceBytes);
  const bool genuine = answer.size() == kNonceBytes + kDigestBytes &&
                       equal_secrets(std::string_view(answer).substr(kNonceBytes),
                                     proof(options, "server", hello, nonce));
  const Failure unproven{
      .code = Code::not_authenticated,
      .message = fmt::format("ranks 0 and {} have different tokens for '{}'; start all ranks of a "
                             "job with the same one",
                             options.rank, options.key),
      .rank = 0};
  if (!genuine) throw_failure(unproven);
  if (!send_message(fd.get(), proof(options, "client", hello, nonce))) return nullptr;
  Fd memory;
  const std::string verdict = receive_message(fd.get(), patience, Deadline::max(), &memory);
  if (verdict.empty()) return nullptr;
  if (verdict[0] == unknown_token) throw_failure(unproven);
  if (verdict[0] != accepted || !memory)
    throw_failure(
        {.code = Code::mismatch,
         .message = fmt::format("rank {} of {} already came for the shared memory '{}', or the "
                                "size differs; give every process its own rank",
                                options.rank, options.size, options.key),
         .rank = options.rank});
  return map_received(options, std::move(memory));
}

std::shared_ptr<SharedMapping> fetch(const ShareOptions& options) {
  constexpr std::chrono::milliseconds kPause{10};
  Patience patience(options);
  while (true) {
    if (auto mapping = try_to_fetch(options, patience)) return mapping;
    // Rank 0 took us for a stranger, if we stalled. If it is gone, the next connection tells.
    patience.look();
    if (patience.over()) throw_failure(no_memory_in_time(options));
    ::poll(nullptr, 0, poll_timeout(patience.slice(steady_clock::now() + kPause)));
  }
}

}  // namespace

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

std::shared_ptr<SharedMapping> share_memory(const ShareOptions& options,
                                            std::shared_ptr<SharedMapping> mapping) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    throw InvalidArgument(fmt::format("share_memory: rank {} of {}", options.rank, options.size));
  if (options.rank != 0) return fetch(options);
  if (!mapping) throw InvalidArgument("share_memory: rank 0 gives the mapping");
  if (options.size > 1) offer(options, mapping->fd());
  return mapping;
}

}  // namespace c10d::inline v0
