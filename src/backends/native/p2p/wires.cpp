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
    lines_[static_cast<std::size_t>(one.neighbour)].wire =
        std::make_unique<Wire>(std::move(one.socket));
    watch(one.neighbour, EPOLL_CTL_ADD, false);
  }
}

void Wires::watch(int rank, int change, bool output) const {
  epoll_event event{};
  event.events = EPOLLIN | (output ? EPOLLOUT : 0u);
  event.data.fd = rank;
  if (::epoll_ctl(poll_.get(), change, at(rank)->fd(), &event) != 0)
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format("epoll_ctl: {}", error_text(errno))});
}

const std::vector<int>& Wires::ready() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(poll_.get(), events.data(), events.size(), 0);
  ready_.clear();
  for (int i = 0; i < count; ++i) ready_.push_back(events[static_cast<std::size_t>(i)].data.fd);
  return ready_;
}

void Wires::update(int rank) {
  Line& line = lines_[static_cast<std::size_t>(rank)];
  if (line.ended) return;
  const bool output = line.wire->has_output();
  if (output != line.has_output) {
    line.has_output = output;
    output ? ++outputs_ : --outputs_;
    watch(rank, EPOLL_CTL_MOD, output);
  }
  if (line.wire->state() == Wire::State::alive) return;
  line.ended = true;
  ++ended_;
  watch(rank, EPOLL_CTL_DEL, false);
}

void Wires::sleep(std::chrono::nanoseconds longest) const noexcept {
  pollfd entry{poll_.get(), POLLIN, 0};
  const timespec time{.tv_sec = 0, .tv_nsec = std::max<long>(longest.count(), 0)};
  ::ppoll(&entry, 1, &time, nullptr);
}

bool Wires::is_acknowledged() const noexcept {
  return std::ranges::all_of(
      lines_, [](const Line& line) { return !line.wire || line.wire->is_acknowledged(); });
}

}}}  // namespace c10d::v0::native
