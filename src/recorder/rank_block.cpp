// SPDX-License-Identifier: BSD-3-Clause
#include "src/recorder/rank_block.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "src/base/failure_text.h"
#include "src/base/host.h"

namespace c10d { inline namespace v0 {
namespace {

template <std::size_t N>
void copy_text(char (&to)[N], std::string_view text) noexcept {
  const std::size_t length = fitting(text, N - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

}  // namespace

void write_header(GroupHeader& header, std::string_view group, int size, int first_rank,
                  int ranks) noexcept {
  header.size = size;
  header.first_rank = first_rank;
  header.ranks = ranks;
  copy_text(header.group, group);
  header.magic.store(GroupHeader::kMagic, std::memory_order_release);
}

void write_identity(RankBlock& block) noexcept {
  block.pid = getpid();
  copy_text(block.host, host_name());
}

void write_cause(GroupHeader& header, const Failure& failure) noexcept {
  std::uint32_t expected = GroupHeader::intact;
  if (!header.state.compare_exchange_strong(expected, GroupHeader::breaking)) return;
  SharedFailure& cause = header.cause;
  cause.code = failure.code;
  cause.rank = failure.rank;
  cause.pid = failure.pid;
  cause.sequence = failure.sequence;
  copy_text(cause.host, failure.host);
  copy_text(cause.op, failure.op);
  copy_text(cause.message, failure.message);
  header.state.store(GroupHeader::broken, std::memory_order_release);
}

Failure read_cause(const GroupHeader& header) {
  // The writer needs well under a microsecond; if it dies there, the cause stays unknown.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (; header.state.load(std::memory_order_acquire) != GroupHeader::broken; sched_yield())
    if (std::chrono::steady_clock::now() >= end)
      return {.code = Code::peer_died, .message = "a rank died while it reported a failure"};
  const SharedFailure& cause = header.cause;
  const bool known = cause.code <= Code::timed_out;
  return {.code = known ? cause.code : Code::corrupt,
          .message = read_text(cause.message),
          .rank = cause.rank,
          .host = read_text(cause.host),
          .pid = cause.pid,
          .op = read_text(cause.op),
          .sequence = cause.sequence};
}

}}  // namespace c10d::v0
