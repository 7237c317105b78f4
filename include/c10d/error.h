// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// What a caller can do about a failure. docs/recovery.md has the ways to continue.
enum class Reason : std::uint8_t {
  timeout,      // a deadline passed: try with more time, or look for the rank that is named
  peer_lost,    // a rank, or the connection to it, is gone: continue without it, or start again
  mismatch,     // ranks disagree: a bug of the program, or processes that do not belong together
  aborted,      // this program ended the group or used it wrongly
  unsupported,  // this backend cannot do it: use another call or another backend
  internal      // a resource or a library failed: the message says which
};

// What happened. The code decides the exception type and the Reason. Each group of codes below
// begins with its exception type; each code with its Reason.
enum class Code : std::uint8_t {
  // DistBackendError
  peer_died,         // peer_lost: a rank's process ended without leaving the group
  peer_left,         // peer_lost: a rank left the group while others still called it
  mismatch,          // mismatch: ranks made different calls; the message shows both
  revoked,           // aborted: abort() was called
  destroyed,         // aborted: the group was shut down or freed
  forked_child,      // aborted: the group belongs to the parent process
  concurrent_use,    // aborted: a second thread called the group; the group itself stays intact
  unsupported,       // unsupported: this backend cannot do that; the group stays intact
  out_of_resources,  // internal: memory, descriptors or threads
  backend_error,     // internal: the wrapped library reported an error
  // DistNetworkError
  link_lost,          // peer_lost: a connection between ranks broke
  wrong_job,          // mismatch: the other side belongs to another job
  version_mismatch,   // mismatch: the other side is another version
  corrupt,            // internal: the other side sent bytes that make no sense
  not_authenticated,  // internal: the other side does not know the job's token
  address_in_use,     // internal: another process listens at this address
  unreachable,        // internal: nobody answers at this address
  // DistStoreError
  store_lost,   // peer_lost: the connection to the store ended and could not be made again
  store_limit,  // internal: a limit of docs/limits.md
  store_error,  // internal: the request makes no sense, such as add() on a value that is no number
  // DistTimeoutError
  timed_out,  // timeout: a deadline passed; the message says in which phase and who is missing
};

// Name of a reason: "timeout", "peer_lost", ...
C10D_API std::string_view to_string(Reason reason) noexcept;
// Name of a code: "peer_died", "mismatch", ...
C10D_API std::string_view to_string(Code code) noexcept;
// The reason that belongs to a code.
C10D_API Reason reason_of(Code code) noexcept;

// A failure as a value: it can cross threads and processes. A fact that is not known is empty, -1
// or 0.
struct Failure {
  Code code = Code::backend_error;  // what happened
  std::string message{};            // what, the values that disagree, what to do
  int rank = -1;         // the rank that the failure is about: it died, did not arrive or disagrees
  std::string host{};    // host of that rank
  std::int64_t pid = 0;  // process id of that rank
  std::string group{};   // ProcessGroup::id()
  std::string op{};      // name of the op: "all_reduce"
  std::uint64_t sequence = 0;  // number of that op in its group, from 1 on
};

// Base of the exceptions that the library throws for failures. what() is one line that holds every
// field that is known. Copying does not throw.
class C10D_API DistError : public std::runtime_error {
 public:
  // An exception with that failure. Use throw_failure() to throw the right type.
  explicit DistError(Failure failure);
  // A copy that shares the failure.
  DistError(const DistError& other) noexcept;
  ~DistError() override;
  // All that is known. Valid as long as this exception.
  const Failure& failure() const noexcept { return *failure_; }
  // What happened.
  Code code() const noexcept { return failure_->code; }
  // What a caller can do about it.
  Reason reason() const noexcept { return reason_of(failure_->code); }

 private:
  std::shared_ptr<const Failure> failure_;
};

// A group or its backend failed: codes peer_died to backend_error.
class C10D_API DistBackendError : public DistError {
 public:
  using DistError::DistError;
  ~DistBackendError() override;
};
// A connection failed: codes link_lost to unreachable.
class C10D_API DistNetworkError : public DistError {
 public:
  using DistError::DistError;
  ~DistNetworkError() override;
};
// A store failed: codes store_lost to store_error.
class C10D_API DistStoreError : public DistError {
 public:
  using DistError::DistError;
  ~DistStoreError() override;
};
// A deadline passed: code timed_out.
class C10D_API DistTimeoutError : public DistError {
 public:
  using DistError::DistError;
  ~DistTimeoutError() override;
};

// A mistake in the arguments or the environment of this rank, found before anything was sent. It is
// no DistError, so that a loop that tries again does not swallow it.
class C10D_API InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
  ~InvalidArgument() override;
};

// Throws the exception type that belongs to failure.code.
[[noreturn]] C10D_API void throw_failure(Failure failure);

}}  // namespace c10d::v0
