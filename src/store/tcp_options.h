// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "c10d/store.h"
#include "src/net/address.h"
#include "src/net/handshake.h"

// What the options of a TcpStore come to. Throw InvalidArgument where they make no sense.
namespace c10d { inline namespace v0 {

HandshakeOptions handshake_options(const TcpStoreOptions& options);
// Whether a store may be at this address.
void check_address(const Address& address, const TcpStoreOptions& options);
// The frame that leaves the will; empty without one.
std::string will_frame(const TcpStoreOptions& options);

}}  // namespace c10d::v0
