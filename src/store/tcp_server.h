// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>
#include <uv.h>

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/net/socket.h"
#include "src/store/server_state.h"

namespace c10d { inline namespace v0 {

// Serves a Service on a listening socket, in a thread of its own with a libuv loop. The destructor
// says goodbye to all clients and returns when the thread has ended.
class TcpServer {
 public:
  TcpServer(Fd listener, HandshakeOptions options, StoreLimits limits);
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;
  ~TcpServer();

 private:
  struct Connection;
  using Connections = std::list<Connection*>;

  void run() noexcept;
  void accept();
  void received(Connection& connection, std::string_view bytes) noexcept;
  // After every event: sends what has gathered, closes what is over, sets the timer.
  void settle() noexcept;
  void flush(Connection& connection);
  void note_refusal(const Connection& connection);
  void enter_limbo(Connection& connection);
  void leave_limbo(Connection& connection);
  void lose(Connection& connection, int error);
  void close(Connection& connection);
  void tick();
  void set_timer();
  void stop();

  Service service_;
  uv_loop_t loop_;
  uv_tcp_t listener_;
  uv_async_t stop_;
  uv_timer_t timer_;
  Deadline timer_at_ = Deadline::max();
  std::size_t max_limbo_;
  std::vector<char> buffer_;
  Connections connections_;
  // Clients that have not authenticated yet, or are on their way out; oldest first. They have two
  // seconds.
  Connections limbo_;
  std::vector<Connection*> dirty_;
  std::map<std::string, int> other_tokens_;  // connections that were refused, by address
  const pid_t owner_ = ::getpid();
  std::thread thread_;
};

}}  // namespace c10d::v0
