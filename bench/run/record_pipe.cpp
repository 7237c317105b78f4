// SPDX-License-Identifier: BSD-3-Clause
#include "bench/run/record_pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "c10d/error.h"

namespace c10d::bench {

RecordPipe::RecordPipe(Sink take, std::function<void(const std::string& text)> report)
    : take_(std::move(take)), report_(std::move(report)) {
  if (pipe2(ends_, O_CLOEXEC) != 0)
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format("no pipe: {}", std::strerror(errno))});
  reader_ = std::thread([this] { read_all(); });
}

RecordPipe::~RecordPipe() {
  close(ends_[1]);
  reader_.join();
  close(ends_[0]);
}

std::string RecordPipe::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), ends_[1]); }

void RecordPipe::read_all() {
  std::string pending;
  std::array<char, 65536> chunk;
  for (;;) {
    const ssize_t got = read(ends_[0], chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    pending.append(chunk.data(), static_cast<std::size_t>(got));
    std::size_t from = 0;
    for (std::size_t end; (end = pending.find('\n', from)) != std::string::npos; from = end + 1)
      read_line(pending.substr(from, end - from));
    pending.erase(0, from);
  }
}

void RecordPipe::read_line(const std::string& text) {
  try {
    take_(Json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    report_(fmt::format("c10d-bench: a record cannot be read: {}", error.what()));
  }
}

}  // namespace c10d::bench
