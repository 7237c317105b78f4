// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/links/links.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
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
constexpr std::chrono::microseconds kSpinning{200}, kAcknowledged{100};
constexpr std::size_t kTurnBytes = 2 * Stream::kChunkBytes;  // of one connection at a time
constexpr std::chrono::milliseconds kSilenceLook{100};

constexpr int kBufferBytes = 1 << 20;  // as much as one direction may have under way

// What the administrator lets processes ask for.
bool may_have_buffers(const char* limit) {
  long bytes = 0;
  return std::ifstream(limit) >> bytes && bytes >= kBufferBytes;
}

// The kernel's own growth is paced by what it saw before. A process that may not have so much
// leaves it to the kernel: with less than that it would be worse off.
void set_buffers(int fd) {
  static const bool may_send = may_have_buffers("/proc/sys/net/core/wmem_max");
  static const bool may_receive = may_have_buffers("/proc/sys/net/core/rmem_max");
  const auto set = [fd](int option) {
    return ::setsockopt(fd, SOL_SOCKET, option, &kBufferBytes, sizeof kBufferBytes) == 0;
  };
  if (!set(SO_SNDBUFFORCE) && may_send) set(SO_SNDBUF);
  if (!set(SO_RCVBUFFORCE) && may_receive) set(SO_RCVBUF);
}

}  // namespace

Links::Links(const BackendContext& context, std::vector<std::vector<Mesh::Connection>> connections)
    : streams_(connections.size()), lines_(static_cast<std::size_t>(context.size) * streams_) {
  std::size_t sockets = 0;
  for (std::size_t stream = 0; stream < streams_; ++stream)
    for (Mesh::Connection& one : connections[stream]) {
      one.rails.for_each_fd([&](int fd) {
        set_buffers(fd);
        ++sockets;
      });
      auto& line = lines_[static_cast<std::size_t>(one.neighbour) * streams_ + stream];
      line.reset(new Line{one.neighbour, std::move(one.rails), {}});
    }
  active_.reserve(lines_.size());
  polled_.reserve(sockets);
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
  if ((line.stream.sends() || line.stream.awaits()) && !std::exchange(line.is_active, true))
    active_.push_back(&line);
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
    const ssize_t count = line.rails.send(pieces);
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
    const ssize_t count = line.rails.receive(pieces);
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
  if (moved && !line.stream.awaits()) line.rails.acknowledge();  // the other end waits for that
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
    if (now >= waiting.next_look) look_for_silence(waiting, now);
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
  const Duration left = waiting.deadline - steady_clock::now();
  // No event says that something was acknowledged.
  const bool has_event = std::ranges::all_of(active_, has_blocks);
  sleep(polled(), std::min<Duration>(left, has_event ? kLongestSleep : kAcknowledged));
  waiting.turns = 0;
  return End::ready;
}

void Links::look_for_silence(Waiting& waiting, Deadline now) {
  waiting.next_look = now + kSilenceLook;
  for (Line* const line : active_)
    if (!line->rails.look(now))
      lose(*line,
           fmt::format("the connection from {}, over the last network of C10D_NET_INTERFACE that "
                       "was left to it, ended, or no answer came for {}",
                       local_address(line->rails.fd()).host(),
                       std::chrono::duration_cast<std::chrono::milliseconds>(Rails::kSilence)),
           Code::link_lost, false);
}

void Links::look_after() {
  if (in_use_.exchange(true, std::memory_order_acquire)) return;
  struct Given {
    std::atomic<bool>& in_use;
    ~Given() { in_use.store(false, std::memory_order_release); }
  } const given{in_use_};
  for (const auto& line : lines_)
    if (line) line->rails.answer();
}

std::vector<pollfd>& Links::polled() {
  polled_.clear();
  for (const Line* const line : active_)
    line->rails.add_polled(polled_, line->stream.awaits(), line->stream.sends());
  return polled_;
}

void Links::sleep(std::span<pollfd> polled, Duration longest) {
  const auto left = std::max<Duration>(longest, Duration());
  const timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(left.count())};
  ::ppoll(polled.data(), polled.size(), &time, nullptr);
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
    if (::getsockopt(line->rails.first_fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) ==
        0)
      return name.data();
  }
  return "unknown";
}

}}}  // namespace c10d::v0::native
