// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "c10d/c.h"
#include "python/torch/src/pytorch.h"

// What PyTorch sees of our failures. module.cpp makes Python exceptions of them.
namespace c10d_torch {

// All that is known of a failure; c10d_failure with texts of its own.
struct Failure {
  explicit Failure(const c10d_failure& failure);

  c10d_code code;
  std::string reason, message, host, group, op;
  std::int32_t rank;
  std::int64_t pid;
  std::uint64_t sequence;
};

// c10d_torch.Error.
class Error final : public BaseError {
 public:
  explicit Error(const c10d_failure& failure, const std::string& before = "");
  Failure failure;
};

// NotImplementedError: what this backend cannot do, and why.
class Unsupported final : public c10::NotImplementedError {
 public:
  explicit Unsupported(const std::string& why);
};

// ValueError: an argument makes no sense.
class Invalid final : public c10::ValueError {
 public:
  explicit Invalid(const std::string& why);
};

std::exception_ptr exception_of(const c10d_failure& failure);
// Says it where nobody can be told by an exception.
void warn_of(const std::exception_ptr& error, const char* what) noexcept;

// Throws the last failure of this thread unless the call succeeded.
inline void check(c10d_code code) {
  if (code != C10D_OK) std::rethrow_exception(exception_of(*c10d_last_failure()));
}

}  // namespace c10d_torch
