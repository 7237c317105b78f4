// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/store.h"
#include "src/net/fd.h"
#include "src/net/socket.h"

namespace c10d::bench {

// A TCP connection of the benchmark's own between two hosts: whole messages, all before one
// deadline. Both throw DistNetworkError when the other end is gone, or silent for too long.
class Connection {
 public:
  Connection(Fd socket, Deadline deadline) : socket_(std::move(socket)), deadline_(deadline) {}

  void send(std::string_view bytes) const;
  // Polls for `awake` before it sleeps.
  void receive(char* data, std::size_t bytes, std::chrono::nanoseconds awake = {}) const;
  int fd() const noexcept { return socket_.get(); }  // nonblocking
  // From now on.
  void set_deadline(Deadline deadline) noexcept { deadline_ = deadline; }

 private:
  Fd socket_;
  Deadline deadline_;
};

// The end that listens does so on `address`, which is its own, on a port that the system picks; the
// other end proves by a secret out of `store`, under `key`, that it is of this job. Collective over
// both ends, which get `count` connections in the same order. Throws DistNetworkError.
enum class End { listens, connects };
std::vector<Connection> connect_hosts(End end, Store& store, const std::string& key,
                                      const std::string& address, std::size_t count,
                                      Deadline deadline);

}  // namespace c10d::bench
