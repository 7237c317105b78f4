// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/reserve_port.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>

#include "c10d/error.h"
#include "src/net/address.h"

namespace c10d { inline namespace v0 {

std::pair<Fd, std::uint16_t> hold_port(const std::string& host) {
  const Address wanted = resolve(host, 0).front();
  Fd fd(socket(wanted.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd.get(), wanted.get(), wanted.length) != 0) {
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format("cannot find a free port on {}: {}", wanted.host(),
                                          error_text(errno))});
  }
  const std::uint16_t port = local_address(fd.get()).port();
  return {std::move(fd), port};
}

}}  // namespace c10d::v0
