// SPDX-License-Identifier: BSD-3-Clause
// What can arrive on a link between ranks: the first byte says in what pieces, and whether the
// other end has proved to be a rank before. Behind that it may be wrong, but not harm.
#include "src/net/mesh/link.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

using namespace c10d;

namespace {

const HandshakeOptions kOptions{.job = "job", .role = "mesh", .token = std::string(32, 't')};

void hand_over(Link& from, Link& to) {
  const std::string bytes(from.output());
  from.sent(bytes.size());
  to.receive(bytes, [](const Frame&) {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const bool proved = (data[0] & 1) != 0;
  const std::size_t piece = data[0] / 2 + std::size_t{1};
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  Link called(kOptions, [](int) { return std::optional<Failure>(); });
  if (proved) {
    Link caller(kOptions, 1);
    for (int i = 0; i < 2; ++i) {
      hand_over(caller, called);
      hand_over(called, caller);
    }
    if (called.state() != Link::State::open) std::abort();
  }
  std::size_t bytes = 0;
  for (; !rest.empty(); rest.remove_prefix(std::min(piece, rest.size())))
    called.receive(rest.substr(0, piece), [&](const Frame& frame) {
      if (!proved || frame.body.size() > Link::kMaxBody) std::abort();
      bytes += frame.body.size();
    });
  // Nobody guesses the token, and a stranger gets little to read.
  if (!proved && called.state() == Link::State::open) std::abort();
  if (bytes > size || called.output().size() > 2 * kMaxStrangerFrame) std::abort();
  return 0;
}
