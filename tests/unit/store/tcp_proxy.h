// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "src/net/socket.h"

namespace c10d::test {

// Passes bytes on between clients and a server on loopback, and cuts all connections when told.
class TcpProxy {
 public:
  explicit TcpProxy(std::uint16_t server_port)
      : server_(resolve("127.0.0.1", server_port)),
        listener_(listen_tcp(resolve("127.0.0.1", 0).front())),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

  std::uint16_t port() const { return local_address(listener_.get()).port(); }

  // Returns once `bytes` more have passed and the cut is made, or after a moment without traffic.
  void cut_after(int bytes) {
    std::unique_lock lock(mutex_);
    left_ = bytes;
    cut_.wait_for(lock, std::chrono::milliseconds(200), [&] { return left_ < 0; });
    left_ = -1;
  }

 private:
  struct Pair {
    Fd client;
    Fd server;
  };

  void run(const std::stop_token& stop) {
    std::vector<Pair> pairs;
    while (!stop.stop_requested()) {
      std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs) {
        entries.push_back({pair.client.get(), POLLIN, 0});
        entries.push_back({pair.server.get(), POLLIN, 0});
      }
      ::poll(entries.data(), entries.size(), 20);
      const std::size_t old = pairs.size();
      if (entries[0].revents != 0) accept(pairs);
      bool alive = true;
      for (std::size_t i = 0; i < old && alive; ++i) {
        if (entries[1 + 2 * i].revents != 0) alive = pass(pairs[i].client, pairs[i].server);
        if (alive && entries[2 + 2 * i].revents != 0)
          alive = pass(pairs[i].server, pairs[i].client);
      }
      if (!alive) pairs.clear();
    }
  }

  void accept(std::vector<Pair>& pairs) {
    Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string problem;
    Fd server =
        connect_tcp(server_, std::chrono::steady_clock::now() + std::chrono::seconds(5), problem);
    if (client && server) pairs.push_back({std::move(client), std::move(server)});
  }

  // False: the connection ended, or is to be cut here.
  bool pass(const Fd& from, const Fd& to) {
    char buffer[512];
    const ssize_t count = ::recv(from.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count <= 0) return false;
    int allowed = static_cast<int>(count);
    bool cut = false;
    {
      const std::lock_guard lock(mutex_);
      if (left_ >= 0) {
        cut = left_ <= allowed;
        allowed = std::min(allowed, left_);
        left_ = cut ? -1 : left_ - allowed;
      }
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    const bool sent = send_all(to.get(), {buffer, static_cast<std::size_t>(allowed)}, deadline);
    if (cut) cut_.notify_all();
    return sent && !cut;
  }

  std::vector<Address> server_;
  Fd listener_;
  std::mutex mutex_;
  std::condition_variable cut_;
  int left_ = -1;
  std::jthread thread_;
};

}  // namespace c10d::test
