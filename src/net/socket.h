// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "c10d/export.h"
#include "c10d/store.h"

namespace c10d::inline v0 {

// Owns one descriptor.
class C10D_API Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }
  int get() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept;
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// "Connection refused", for messages; thread-safe.
C10D_API std::string error_text(int error);

// Time left, rounded up to milliseconds and at least 0, as poll() wants it.
C10D_API int poll_timeout(Deadline deadline) noexcept;

// Waits until `fd` has one of the poll `events` or an error to tell; false when the deadline
// passed.
C10D_API bool wait_for(int fd, short events, Deadline deadline);

}  // namespace c10d::inline v0
