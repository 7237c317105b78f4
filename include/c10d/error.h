// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// What a caller can do about a failure.
enum class Reason : std::uint8_t { timeout, peer_lost, mismatch, aborted, unsupported, internal };

// What happened. The code decides the exception type and the Reason.
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
  backend_error,     // internal: the library below reported an error
  // DistNetworkError
  link_lost,          // peer_lost
  wrong_job,          // mismatch: the other side belongs to another job
  version_mismatch,   // mismatch: the other side is another version
  corrupt,            // internal: bytes that are not ours
  not_authenticated,  // internal: the other side does not know the job's token
  address_in_use,     // internal
  unreachable,        // internal
  // DistStoreError
  store_lost,   // peer_lost: the connection to the store ended and could not be made again
  store_limit,  // internal: a limit of docs/limits.md
  store_error,  // internal: the request makes no sense (add on a value that is no number, ...)
  // DistTimeoutError
  timed_out,  // timeout: a deadline passed; the message says in which phase and who is missing
};

C10D_API std::string_view to_string(Reason reason) noexcept;
C10D_API std::string_view to_string(Code code) noexcept;  // "PeerDied", ...
C10D_API Reason reason_of(Code code) noexcept;

// A failure as a value: what crosses threads and processes. Absent facts are empty, -1 or 0.
struct Failure {
  Code code = Code::backend_error;
  std::string message{};  // one sentence: what, the values that disagree, what to do
  int rank = -1;  // the rank that the failure is about: who died, who is missing, who disagrees
  std::string host{};    // of that rank
  std::int64_t pid = 0;  // of that rank
  std::string group{};
  std::string op{};            // "all_reduce"
  std::uint64_t sequence = 0;  // of that op in its group, from 1 on
};

// Thrown by the public API. `what()` is one line that holds every field.
class C10D_API DistError : public std::runtime_error {
 public:
  explicit DistError(Failure failure);
  DistError(const DistError&) noexcept;
  ~DistError() override;
  const Failure& failure() const noexcept { return *failure_; }
  Code code() const noexcept { return failure_->code; }
  Reason reason() const noexcept { return reason_of(failure_->code); }

 private:
  std::shared_ptr<const Failure> failure_;
};

class C10D_API DistBackendError : public DistError {
 public:
  using DistError::DistError;
  ~DistBackendError() override;
};
class C10D_API DistNetworkError : public DistError {
 public:
  using DistError::DistError;
  ~DistNetworkError() override;
};
class C10D_API DistStoreError : public DistError {
 public:
  using DistError::DistError;
  ~DistStoreError() override;
};
class C10D_API DistTimeoutError : public DistError {
 public:
  using DistError::DistError;
  ~DistTimeoutError() override;
};

// This rank's own mistake, found before anything was sent: not a DistError, so that no retry loop
// swallows it.
class C10D_API InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
  ~InvalidArgument() override;
};

// Throws the exception type that belongs to failure.code.
[[noreturn]] C10D_API void throw_failure(Failure failure);

}}  // namespace c10d::v0
