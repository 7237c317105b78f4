// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "c10d/call.h"
#include "c10d/error.h"
#include "c10d/export.h"
#include "src/net/address.h"
#include "src/net/fd.h"

namespace c10d { inline namespace v0 {

// "Connection refused", for messages; thread-safe.
C10D_API std::string error_text(int error);

// Time left, rounded up to milliseconds and at least 0, as poll() wants it.
C10D_API int poll_timeout(Deadline deadline) noexcept;

// Waits until `fd` has one of the poll `events` or an error to tell; false when the deadline
// passed.
C10D_API bool wait_for(int fd, short events, Deadline deadline);

// Sends everything, whatever the socket's mode; false when the connection is gone or the deadline
// passed.
C10D_API bool send_all(int fd, std::string_view bytes, Deadline deadline);

// Binds exactly `address` and listens; nonblocking. Throws DistNetworkError (address_in_use,
// unreachable).
C10D_API Fd listen_tcp(const Address& address);

// Nonblocking, without delay of small frames, and noticing within two seconds that the other host
// is gone. Tries the addresses in turn; a null Fd leaves the reason in `problem`. Throws
// `unreachable` where it is known that waiting is in vain: no loopback interface.
C10D_API Fd connect_tcp(const std::vector<Address>& addresses, Deadline deadline,
                        std::string& problem);
// The options of a connected socket.
C10D_API void tune_tcp(int fd) noexcept;
// Takes back that it notices a silent host. The kernel counts one that does not read for silent.
C10D_API void leave_unwatched(int fd) noexcept;

}}  // namespace c10d::v0
