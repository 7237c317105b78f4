// SPDX-License-Identifier: BSD-3-Clause
// What a connection can send before it has proved to belong to the job. The first byte says in what
// pieces the rest arrives.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "src/store/server_state.h"

using namespace c10d;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::size_t piece = data[0] + std::size_t{1};
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  Service service({.job = "job", .role = "store", .token = std::string(32, 't')}, {});
  Session session(service, [] {});
  while (!rest.empty()) {
    session.receive(rest.substr(0, piece));
    rest.remove_prefix(std::min(piece, rest.size()));
  }
  // Nobody guesses the token, and a stranger gets little to read.
  if (!session.is_stranger() || session.take_output().size() > 2 * kMaxStrangerFrame) std::abort();
  return 0;
}
