// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "c10d/error.h"
#include "src/net/socket.h"
#include "src/net/token.h"

namespace c10d { inline namespace v0 {
namespace {

std::string read_token(int fd, const std::string& source) {
  std::string token(kMostTokenBytes + 1, '\0');
  const ssize_t length = pread(fd, token.data(), token.size(), 0);
  if (length < static_cast<ssize_t>(kLeastTokenBytes))
    throw InvalidArgument(fmt::format(
        "{}: no token of at least {} bytes there; write 32 random ones", source, kLeastTokenBytes));
  token.resize(static_cast<std::size_t>(length));
  if (token.size() > kMostTokenBytes)
    throw InvalidArgument(
        fmt::format("{}: more than {} bytes there, which is no token; write 32 random ones", source,
                    kMostTokenBytes));
  return token;
}

}  // namespace

std::string read_token_fd(int fd) { return read_token(fd, fmt::format("C10D_TOKEN_FD={}", fd)); }

std::string read_token_file(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0)
    throw InvalidArgument(
        fmt::format("C10D_TOKEN_FILE={}: cannot be opened: {}", path, error_text(errno)));
  if (!S_ISREG(status.st_mode))
    throw InvalidArgument(fmt::format("C10D_TOKEN_FILE={}: is no file", path));
  if ((status.st_mode & 077) != 0)
    throw InvalidArgument(
        fmt::format("C10D_TOKEN_FILE={}: readable by others; make it mode 0600", path));
  return read_token(fd.get(), "C10D_TOKEN_FILE=" + path);
}

}}  // namespace c10d::v0
