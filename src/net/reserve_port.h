// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "c10d/export.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {

// A port of `host`, an address of this one, for somebody else's server, bound but not listened on:
// while the descriptor is open nobody is given that port, and a server that sets SO_REUSEADDR, as
// PyTorch's does, can bind it. Throws DistBackendError (out_of_resources), DistNetworkError
// (unreachable).
C10D_API std::pair<Fd, std::uint16_t> hold_port(const std::string& host = "127.0.0.1");

}}  // namespace c10d::v0
