// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "c10d/error.h"

namespace c10d::inline v0 {

std::pair<Fd, std::uint16_t> hold_port() {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd.get(), generic, sizeof address) != 0 ||
      getsockname(fd.get(), generic, &length) != 0) {
    throw_failure({.code = Code::out_of_resources,
                   .message = "cannot find a free port on 127.0.0.1: " + error_text(errno)});
  }
  return {std::move(fd), ntohs(address.sin_port)};
}

}  // namespace c10d::inline v0
