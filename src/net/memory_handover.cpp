// SPDX-License-Identifier: BSD-3-Clause
// share_memory() of shared_memory.h: how rank 0 hands a descriptor to the other ranks of its host,
// and to nobody else.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "c10d/error.h"
#include "src/base/log.h"
#include "src/net/shared_memory.h"
#include "src/net/socket.h"
#include "src/net/token.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kHelloBytes = 8 + kNonceBytes;

// What rank 0 says last. The descriptor rides on `accepted`.
enum Verdict : char { accepted = 'A', duplicate_rank = 'D', unknown_token = 'T' };

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
  // False when the deadline passed.
  bool wait_for_input(int fd) {
    while (!wait_for(fd, POLLIN, slice())) {
      look();
      if (over()) return false;
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
              fmt::format("rank {} went away while rank {} waited for the shared memory '{}' ({})",
                          options.name(0), options.name(options.rank), options.key, detail),
          .rank = options.name(0)};
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

// One that is there. Empty: the other side closed.
std::string take_message(int fd, Fd* descriptor = nullptr) {
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

// Empty: the other side closed, or the deadline passed.
std::string receive_message(int fd, Patience& patience, Fd* descriptor = nullptr) {
  return patience.wait_for_input(fd) ? take_message(fd, descriptor) : "";
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

Failure did_not_come(const ShareOptions& options, const std::vector<bool>& served) {
  std::vector<int> missing;
  for (int rank = 1; rank < options.size; ++rank)
    if (!served[static_cast<std::size_t>(rank)]) missing.push_back(options.name(rank));
  return {.code = Code::timed_out,
          .message = fmt::format("rank(s) {} did not arrive for the shared memory '{}'",
                                 fmt::join(missing, ", "), options.key),
          .rank = missing.front()};
}

// Hands the memory to every process that proves to be a rank, all at the same time: one that is
// silent, a stranger or a rank that is stopped, delays no other.
class Handout {
 public:
  Handout(const ShareOptions& options, int memory)
      : options_(options),
        memory_(memory),
        listener_(unix_socket(SOCK_NONBLOCK)),
        served_(static_cast<std::size_t>(options.size), false) {
    served_[0] = true;
    const std::string name = "c10d-" + to_hex(random_bytes(16));
    sockaddr_un address;
    const socklen_t length = abstract_address(name, address);
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener_.get(), options.size) != 0)
      throw_failure({.code = Code::out_of_resources,
                     .message = "cannot listen on an AF_UNIX socket: " + error_text(errno)});
    // A moment also for one that is late: the others look for it.
    options.store->set(options.key, name,
                       std::max<Duration>(options.deadline - steady_clock::now(), kSilence));
  }

  void serve_all() {
    Patience patience(options_);
    while (std::find(served_.begin(), served_.end(), false) != served_.end()) {
      patience.look();
      if (patience.over()) throw_failure(did_not_come(options_, served_));
      const Deadline now = steady_clock::now();
      std::erase_if(visitors_, [now](const Visitor& visitor) { return now >= visitor.until; });
      for (const std::size_t ready : wait(patience)) serve(visitors_[ready]);
      std::erase_if(visitors_, [](const Visitor& visitor) { return !visitor.fd; });
      // Strangers may come as fast as they are accepted: not all before the next look.
      for (std::size_t i = 0; i < kVisitors && has_room() && accept_one(); ++i) {
      }
    }
  }

 private:
  struct Visitor {
    Fd fd;
    Deadline until;
    std::string hello, nonce;  // once it has said hello
  };
  static constexpr std::chrono::seconds kSilence{2};
  static constexpr std::size_t kVisitors = 128;
  static constexpr std::chrono::milliseconds kAnswer{100};  // within it a rank that runs answers

  // Where there is none, it is made of the oldest, if that is silent.
  bool has_room() {
    if (visitors_.size() < kVisitors) return true;
    if (steady_clock::now() < visitors_.front().until - kSilence + kAnswer) return false;
    visitors_.erase(visitors_.begin());
    return true;
  }

  // The visitors that have something to say.
  std::vector<std::size_t> wait(const Patience& patience) const {
    std::vector<pollfd> entries;
    Deadline until = patience.slice();
    for (const Visitor& visitor : visitors_) {
      entries.push_back({visitor.fd.get(), POLLIN, 0});
      until = std::min(until, visitor.until);
    }
    if (visitors_.size() < kVisitors)
      entries.push_back({listener_.get(), POLLIN, 0});
    else
      until = std::min(until, visitors_.front().until - kSilence + kAnswer);
    ::poll(entries.data(), entries.size(), poll_timeout(until));
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < visitors_.size(); ++i)
      if (entries[i].revents != 0) ready.push_back(i);
    return ready;
  }

  // False: no process is there.
  bool accept_one() {
    Fd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer) {
      if (errno == EINTR || errno == ECONNABORTED) return true;
      if (errno == EAGAIN) return false;
      throw_failure({.code = Code::out_of_resources,
                     .message = "accept(AF_UNIX): " + error_text(errno) + "; raise ulimit -n"});
    }
    static RareLine other_user(LogLevel::warn, "shared memory: refused another user's process");
    if (same_user(peer.get()))
      visitors_.push_back({std::move(peer), steady_clock::now() + kSilence, {}, {}});
    else
      other_user.say();
    return true;
  }

  // Takes its next message. A visitor whose connection is closed leaves.
  void serve(Visitor& visitor) {
    const std::string message = take_message(visitor.fd.get());
    if (visitor.hello.empty() ? greet(visitor, message) : hand_over(visitor, message)) return;
    visitor.fd.reset();
  }

  bool greet(Visitor& visitor, const std::string& hello) {
    if (hello.size() != kHelloBytes || hello.compare(0, 4, "c10m") != 0) return false;
    visitor.hello = hello;
    visitor.nonce = random_bytes(kNonceBytes);
    return send_message(visitor.fd.get(),
                        visitor.nonce + proof(options_, "server", hello, visitor.nonce));
  }

  // False in any case: it was the last message.
  bool hand_over(const Visitor& visitor, const std::string& answer) {
    if (answer.empty()) return false;  // it went away
    if (!equal_secrets(answer, proof(options_, "client", visitor.hello, visitor.nonce))) {
      static RareLine stranger(
          LogLevel::warn, "shared memory: refused a process that does not know the job's token");
      send_message(visitor.fd.get(), std::string(1, unknown_token));
      stranger.say();
      return false;
    }
    std::int32_t rank = 0;
    std::memcpy(&rank, visitor.hello.data() + 4, 4);
    const auto slot = static_cast<std::size_t>(rank);
    if (rank < 1 || slot >= served_.size() || served_[slot]) {
      send_message(visitor.fd.get(), std::string(1, duplicate_rank));
      log(LogLevel::warn, "shared memory: refused a second rank {}", options_.name(rank));
    } else if (send_message(visitor.fd.get(), std::string(1, accepted), memory_)) {
      served_[slot] = true;
    }
    return false;
  }

  const ShareOptions& options_;
  const int memory_;
  const Fd listener_;
  std::vector<bool> served_;       // by rank
  std::vector<Visitor> visitors_;  // as they came
};

std::string name_from_store(const ShareOptions& options, Patience& patience) {
  while (true) {
    const Duration left = patience.slice() - steady_clock::now();
    try {
      return options.store->get(options.key, std::max(Duration(1), left));
    } catch (const DistTimeoutError&) {
    }
    patience.look();
    if (patience.over())
      throw_failure(
          {.code = Code::timed_out,
           .message = fmt::format("rank {} did not offer the shared memory '{}' to rank "
                                  "{}",
                                  options.name(0), options.key, options.name(options.rank)),
           .rank = options.name(0)});
  }
}

std::shared_ptr<SharedMapping> map_received(const ShareOptions& options, Fd memory) {
  struct stat status {};
  if (!is_sealed(memory.get()) || ::fstat(memory.get(), &status) != 0 || status.st_size <= 0)
    throw_failure(
        {.code = Code::corrupt,
         .message = fmt::format("rank {} sent something for '{}' that is no sealed memory",
                                options.name(0), options.key),
         .rank = options.name(0)});
  return std::make_shared<SharedMapping>(memory.release(),
                                         static_cast<std::size_t>(status.st_size));
}

Failure no_memory_in_time(const ShareOptions& options) {
  return {.code = Code::timed_out,
          .message = fmt::format("rank {} did not hand the shared memory '{}' to rank {}",
                                 options.name(0), options.key, options.name(options.rank)),
          .rank = options.name(0)};
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
      .message = fmt::format("ranks {} and {} have different tokens for '{}'; start all ranks of a "
                             "job with the same one",
                             options.name(0), options.name(options.rank), options.key),
      .rank = options.name(0)};
  if (!genuine) throw_failure(unproven);
  if (!send_message(fd.get(), proof(options, "client", hello, nonce))) return nullptr;
  Fd memory;
  const std::string verdict = receive_message(fd.get(), patience, &memory);
  if (verdict.empty()) return nullptr;
  if (verdict[0] == unknown_token) throw_failure(unproven);
  if (verdict[0] != accepted || !memory)
    throw_failure(
        {.code = Code::mismatch,
         .message = fmt::format("rank {} of {} already came for the shared memory '{}', or the "
                                "size differs; give every process its own rank",
                                options.name(options.rank), options.size, options.key),
         .rank = options.name(options.rank)});
  return map_received(options, std::move(memory));
}

std::shared_ptr<SharedMapping> fetch(const ShareOptions& options) {
  constexpr std::chrono::milliseconds kPause{10};
  Patience patience(options);
  while (true) {
    if (auto mapping = try_to_fetch(options, patience)) return mapping;
    // Rank 0 took us for a stranger, if we were silent for long. If it is gone, the next connection
    // tells.
    patience.look();
    if (patience.over()) throw_failure(no_memory_in_time(options));
    ::poll(nullptr, 0, poll_timeout(patience.slice(steady_clock::now() + kPause)));
  }
}

}  // namespace

std::shared_ptr<SharedMapping> share_memory(const ShareOptions& options,
                                            std::shared_ptr<SharedMapping> mapping) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    throw InvalidArgument(fmt::format("share_memory: rank {} of {}", options.rank, options.size));
  if (options.rank != 0) return fetch(options);
  if (!mapping) throw InvalidArgument("share_memory: rank 0 gives the mapping");
  if (options.size > 1) Handout(options, mapping->fd()).serve_all();
  return mapping;
}

}}  // namespace c10d::v0
