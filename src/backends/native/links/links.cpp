// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/links/links.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "src/backends/common/failures.h"
#include "src/base/members.h"
#include "src/net/address.h"
#include "src/net/socket.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestSleep{1};
constexpr std::chrono::microseconds kSpinning{200};
constexpr std::size_t kTurnBytes = 2 * Stream::kChunkBytes;  // of one connection at a time
// Longer than it takes to know that a host is silent on the links between ranks. Looks that are
// further apart than kAway say nothing of the time between: this process may have been stopped.
constexpr std::chrono::milliseconds kSilence{2200}, kSilenceLook{100}, kAway{1000};

// As large as one direction may have under way; the kernel's own growth is paced by what it saw
// before. A process that may not have so much leaves it to the kernel.
void set_buffers(int fd) {
  constexpr int kBytes = 1 << 20;
  for (const int option : {SO_SNDBUFFORCE, SO_RCVBUFFORCE})
    ::setsockopt(fd, SOL_SOCKET, option, &kBytes, sizeof kBytes);
}

// Has the kernel ask the other host, which answers for a rank that does not read, too, whenever
// nothing is on its way. It never gives up: look_for_silence() does.
void keep_alive(int fd) {
  constexpr int kOn = 1, kSecond = 1, kMostProbes = 127;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  for (const int option : {TCP_KEEPIDLE, TCP_KEEPINTVL})
    ::setsockopt(fd, IPPROTO_TCP, option, &kSecond, sizeof kSecond);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kMostProbes, sizeof kMostProbes);
}

msghdr message_of(std::span<iovec> pieces) noexcept {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return message;
}

}  // namespace

Links::Links(const BackendContext& context, std::vector<std::vector<Mesh::Connection>> connections,
             std::size_t networks)
    : streams_(connections.size()),
      networks_(networks),
      lines_(static_cast<std::size_t>(context.size) * streams_) {
  for (std::size_t stream = 0; stream < streams_; ++stream)
    for (Mesh::Connection& one : connections[stream]) {
      set_buffers(one.socket.get());
      if (networks_ > 1) keep_alive(one.socket.get());
      auto& line = lines_[static_cast<std::size_t>(one.neighbour) * streams_ + stream];
      line.reset(new Line{one.neighbour, std::move(one.socket), {}});
    }
  active_.reserve(lines_.size());
}

Links::Part Links::part_of(std::size_t bytes, std::size_t stream, std::size_t turn) const noexcept {
  const std::size_t chunks = (bytes + Stream::kChunkBytes - 1) / Stream::kChunkBytes;
  // Values and results, which may differ in length, go by turns: no stream shall have one of them.
  const std::size_t place = (stream + turn + turn / streams_) % streams_;
  const auto end_of = [&](std::size_t places) {
    return std::min(bytes, chunks * places / streams_ * Stream::kChunkBytes);
  };
  return {end_of(place), end_of(place + 1) - end_of(place)};
}

void Links::activate(Line& line) {
  if (is_busy(line) && !std::exchange(line.is_active, true)) active_.push_back(&line);
}

// Each stream has a part of each block, if only an empty one: so all have the same number of them.
template <class Post>
void Links::post(int rank, std::size_t bytes, std::size_t turn, Post&& post) {
  for (std::size_t stream = 0; stream < streams_; ++stream) {
    Line& one = line(rank, stream);
    post(one.stream, part_of(bytes, stream, turn));
    activate(one);
  }
}

void Links::send(int rank, const std::byte* from, std::size_t bytes, std::uint64_t sequence) {
  post(rank, bytes, posted_sends(rank),
       [&](Stream& stream, Part part) { stream.send(from + part.first, part.bytes, sequence); });
}

void Links::receive(int rank, std::byte* to, std::size_t bytes, std::uint64_t sequence) {
  post(rank, bytes, posted_receives(rank),
       [&](Stream& stream, Part part) { stream.receive(to + part.first, part.bytes, sequence); });
}

template <std::size_t (Stream::*Count)() const noexcept>
std::size_t Links::least_of(int rank) const noexcept {
  std::size_t least = (line(rank, 0).stream.*Count)();
  for (std::size_t stream = 1; stream < streams_; ++stream)
    least = std::min(least, (line(rank, stream).stream.*Count)());
  return least;
}

std::size_t Links::posted_sends(int rank) const noexcept {
  return line(rank, 0).stream.posted_sends();
}
std::size_t Links::posted_receives(int rank) const noexcept {
  return line(rank, 0).stream.posted_receives();
}
std::size_t Links::sent(int rank) const noexcept { return least_of<&Stream::sent>(rank); }
std::size_t Links::received(int rank) const noexcept { return least_of<&Stream::received>(rank); }

void Links::lose(Line& line, std::string why, Code code, bool is_reason) {
  line.stream.end(why);
  if (!lost_) lost_ = {line.rank, std::move(why), code, is_reason};
}

Failure Links::failure_of_loss(const BackendContext& context) const {
  const Member& peer = context.members[static_cast<std::size_t>(lost_->rank)];
  return caused_by(peer, failure_in(context, lost_->code,
                                    fmt::format("the connection of rank {} to {} is lost: {}",
                                                context.rank, name_of(peer), lost_->why)));
}

bool Links::write(Line& line) {
  bool moved = false;
  std::size_t budget = kTurnBytes;
  for (auto pieces = line.stream.output(); !pieces.empty() && budget != 0;
       pieces = line.stream.output()) {
    const msghdr message = message_of(pieces);
    const ssize_t count = ::sendmsg(line.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      // What the other end said before it ended can still be read, if it is awaited.
      const bool ended = errno == EPIPE || errno == ECONNRESET;
      if (errno != EAGAIN && !(ended && line.stream.awaits()))
        lose(line, error_text(errno), Code::link_lost, false);
      return moved;
    }
    line.stream.wrote(static_cast<std::size_t>(count));
    budget -= std::min(budget, static_cast<std::size_t>(count));
    moved = true;
  }
  return moved;
}

bool Links::read(Line& line) {
  bool moved = false;
  std::size_t budget = kTurnBytes;
  for (auto pieces = line.stream.input(); !pieces.empty() && budget != 0;
       pieces = line.stream.input()) {
    msghdr message = message_of(pieces);
    const ssize_t count = ::recvmsg(line.socket.get(), &message, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return moved;
    if (count <= 0) {
      lose(line, count == 0 ? "its connection ended" : error_text(errno), Code::link_lost, false);
      return moved;
    }
    line.stream.read(static_cast<std::size_t>(count));
    budget -= std::min(budget, static_cast<std::size_t>(count));
    if (!line.stream.problem().empty()) lose(line, line.stream.problem(), Code::corrupt, true);
    moved = true;
  }
  return moved;
}

void Links::push() {
  for (Line* const line : active_) write(*line);
}

bool Links::progress() {
  bool moved = false;
  for (Line* const line : active_) {
    moved |= write(*line);
    moved |= read(*line);
  }
  std::erase_if(active_, [](Line* line) {
    line->is_active = is_busy(*line);
    return !line->is_active;
  });
  return moved;
}

Links::End Links::turn(Waiting& waiting, bool moved) {
  constexpr int kLookPeriod = 16;
  if (waiting.turns++ % kLookPeriod == 0) {
    if (waiting.control.broken()) return End::broken;
    const Deadline now = steady_clock::now();
    if (now >= waiting.deadline) return End::timed_out;
    if (networks_ > 1 && now >= waiting.next_look) look_for_silence(waiting, now);
    if (lost_) return End::lost;
  }
  if (Fiber::running()) {
    Fiber::yield(moved ? Poll::busy : Poll::idle);
    if (!moved) waiting.turns = 0;  // a look at each: turns are rare
    return End::ready;
  }
  if (moved) {
    waiting.spins_since = {};
    return End::ready;
  }
  if (waiting.policy.spins()) {
    const auto now = steady_clock::now();
    if (waiting.spins_since == steady_clock::time_point{}) waiting.spins_since = now;
    if (now < waiting.spins_since + kSpinning) {
      pause_between_polls(now - waiting.spins_since);
      return End::ready;
    }
  }
  WaitLook::due();
  sleep(std::min<Deadline>(waiting.deadline, steady_clock::now() + kLongestSleep));
  waiting.turns = 0;
  return End::ready;
}

void Links::look_for_silence(Waiting& waiting, Deadline now) {
  const bool was_away = now > waiting.next_look + kAway;
  waiting.next_look = now + kSilenceLook;
  for (Line* const line : active_) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(line->socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    const bool is_quiet = info.tcpi_unacked == 0 && info.tcpi_probes == 0;
    const Deadline answered = now - std::chrono::milliseconds(info.tcpi_last_ack_recv);
    line->heard = std::max({line->heard, waiting.since, is_quiet || was_away ? now : answered});
    if (now - line->heard > kSilence)
      lose(*line,
           fmt::format("for {} no answer came to what was sent from {}; is that network cut, while "
                       "the first of C10D_NET_INTERFACE is not?",
                       std::chrono::duration_cast<std::chrono::milliseconds>(kSilence),
                       local_address(line->socket.get()).host()),
           Code::link_lost, true);
  }
}

void Links::sleep(Deadline deadline) const {
  std::vector<pollfd> entries;
  for (const Line* const line : active_) {
    const int in = line->stream.awaits() ? POLLIN : 0, out = line->stream.sends() ? POLLOUT : 0;
    entries.push_back({line->socket.get(), static_cast<short>(in | out), 0});
  }
  ::poll(entries.data(), entries.size(), poll_timeout(deadline));
}

std::vector<int> Links::awaited() const {
  std::vector<int> ranks;
  for (const Line* const line : active_) ranks.push_back(line->rank);
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::string Links::congestion_control() const {
  for (const auto& line : lines_) {
    if (!line) continue;
    std::array<char, 16> name{};
    socklen_t length = name.size();
    if (::getsockopt(line->socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) == 0)
      return name.data();
  }
  return "unknown";
}

}}}  // namespace c10d::v0::native
