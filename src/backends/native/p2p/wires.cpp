// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/wires.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "src/backends/common/failures.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 { namespace native {

Wires::Wires(const BackendContext& context, std::vector<Mesh::Connection> connections)
    : lines_(static_cast<std::size_t>(context.size)), count_(connections.size()) {
  if (empty()) return;
  poll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!poll_)
    throw_failure(failure_in(context, Code::out_of_resources,
                             fmt::format("rank {} has no descriptor for an epoll: {}; raise "
                                         "ulimit -n",
                                         context.rank, error_text(errno)),
                             context.rank));
  for (Mesh::Connection& one : connections) {
    has_several_ |= one.rails.has_several();
    lines_[static_cast<std::size_t>(one.neighbour)].wire =
        std::make_unique<Wire>(std::move(one.rails));
    watch(one.neighbour);
  }
}

// As its wire wants it now.
void Wires::watch(int rank) {
  Line& line = lines_[static_cast<std::size_t>(rank)];
  const auto change = [&](int how, const pollfd& entry) {
    epoll_event event{};
    event.events = static_cast<std::uint32_t>(entry.events);
    event.data.fd = rank;
    if (::epoll_ctl(poll_.get(), how, entry.fd, &event) != 0)
      throw_failure({.code = Code::out_of_resources,
                     .message = fmt::format("epoll_ctl: {}", error_text(errno))});
  };
  if (!has_several_ && !line.ended && !line.watched.empty()) {
    line.watched[0].events = static_cast<short>(POLLIN | (line.has_output ? POLLOUT : 0));
    return change(EPOLL_CTL_MOD, line.watched[0]);
  }
  std::vector<pollfd> wanted;
  if (!line.ended) line.wire->rails().add_polled(wanted, true, line.wire->has_output());
  const auto find = [](std::vector<pollfd>& entries, int fd) {
    return std::ranges::find(entries, fd, &pollfd::fd);
  };
  for (const pollfd& entry : line.watched)
    if (find(wanted, entry.fd) == wanted.end()) change(EPOLL_CTL_DEL, entry);
  for (const pollfd& entry : wanted) {
    const auto old = find(line.watched, entry.fd);
    if (old == line.watched.end())
      change(EPOLL_CTL_ADD, entry);
    else if (old->events != entry.events)
      change(EPOLL_CTL_MOD, entry);
  }
  line.watched.swap(wanted);
}

// No event says that something was acknowledged.
void Wires::add_unacknowledged() {
  awaits_acknowledgement_ = false;
  for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
    const Line& line = lines_[rank];
    if (!line.wire || line.ended || !line.wire->awaits_acknowledgement()) continue;
    ready_.push_back(static_cast<int>(rank));
    awaits_acknowledgement_ = true;
  }
}

void Wires::look_for_silence() {
  constexpr std::chrono::milliseconds kLook{100};
  const Deadline now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + kLook;
  for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
    if (!lines_[rank].wire || lines_[rank].ended) continue;
    lines_[rank].wire->look_for_silence(now);
    update(static_cast<int>(rank));
  }
}

void Wires::look_after() {
  if (!has_several_) return;
  for (const Line& line : lines_)
    if (line.wire && !line.ended) line.wire->answer();
  look_for_silence();
}

const std::vector<int>& Wires::ready() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(poll_.get(), events.data(), events.size(), 0);
  ready_.clear();
  for (int i = 0; i < count; ++i) ready_.push_back(events[static_cast<std::size_t>(i)].data.fd);
  if (has_several_) {
    look_for_silence();
    add_unacknowledged();
  }
  return ready_;
}

void Wires::update(int rank) {
  Line& line = lines_[static_cast<std::size_t>(rank)];
  if (line.ended) return;
  const bool output = line.wire->has_output();
  const bool has_changed = output != line.has_output;
  if (has_changed) {
    line.has_output = output;
    output ? ++outputs_ : --outputs_;
  }
  line.ended = line.wire->state() != Wire::State::alive;
  if (line.ended) ++ended_;
  if (line.wire->awaits_acknowledgement()) awaits_acknowledgement_ = true;
  if (has_changed || line.ended || has_several_) watch(rank);
}

void Wires::sleep(std::chrono::nanoseconds longest) const noexcept {
  pollfd entry{poll_.get(), POLLIN, 0};
  constexpr std::chrono::microseconds kAcknowledged{100};
  if (awaits_acknowledgement_) longest = std::min<std::chrono::nanoseconds>(longest, kAcknowledged);
  const timespec time{.tv_sec = 0, .tv_nsec = std::max<long>(longest.count(), 0)};
  ::ppoll(&entry, 1, &time, nullptr);
}

bool Wires::is_acknowledged() const {
  return std::ranges::all_of(
      lines_, [](const Line& line) { return !line.wire || line.wire->is_acknowledged(); });
}

}}}  // namespace c10d::v0::native
