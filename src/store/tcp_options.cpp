// SPDX-License-Identifier: BSD-3-Clause
#include "src/store/tcp_options.h"

#include <fmt/format.h>

#include "src/net/frame.h"
#include "src/net/token.h"
#include "src/store/protocol.h"
#include "src/store/server_state.h"

namespace c10d { inline namespace v0 {

HandshakeOptions handshake_options(const TcpStoreOptions& options) {
  if (options.job.size() > kMaxJobBytes)
    throw InvalidArgument(fmt::format("TcpStoreOptions::job has {} bytes; at most {} are allowed",
                                      options.job.size(), kMaxJobBytes));
  if (!options.token.empty() && options.token.size() < kLeastTokenBytes)
    throw InvalidArgument(
        fmt::format("TcpStoreOptions::token has {} bytes; a secret has at least "
                    "{}, better 32",
                    options.token.size(), kLeastTokenBytes));
  if (options.token.size() > kMostTokenBytes)
    throw InvalidArgument(fmt::format("TcpStoreOptions::token has {} bytes; at most {} are allowed",
                                      options.token.size(), kMostTokenBytes));
  return {.job = options.job, .role = "store", .token = options.token};
}

void check_address(const Address& address, const TcpStoreOptions& options) {
  if (address.is_wildcard() && options.server && !options.allow_wildcard)
    throw InvalidArgument(
        fmt::format("the store would listen on {}, which is every interface; "
                    "name one address, or set allow_wildcard and a token",
                    address.text()));
  if (options.token.empty() && !address.is_loopback())
    throw InvalidArgument(
        fmt::format("a store at {} needs a token: without one only loopback addresses are allowed; "
                    "set C10D_TOKEN_FILE to a file of 32 random bytes, mode 0600, the same for "
                    "every rank",
                    address.text()));
}

std::string will_frame(const TcpStoreOptions& options) {
  if (options.will.empty()) return {};
  Request will{.op = StoreOp::multi_set};
  for (const auto& [key, value] : options.will) {
    will.keys.push_back(key);
    will.values.push_back(value);
  }
  if (encoded_size(will) > kMaxWillBytes)
    throw InvalidArgument(fmt::format("TcpStoreOptions::will has {} bytes; at most {} are allowed",
                                      encoded_size(will), kMaxWillBytes));
  std::string frame;
  begin_frame(frame, kWillFrame, 0);
  encode(Duration::zero(), will, frame);
  end_frame(frame, 0);
  return frame;
}

}}  // namespace c10d::v0
