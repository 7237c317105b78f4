// SPDX-License-Identifier: BSD-3-Clause
#include "python/torch/src/failures.h"

#include <array>
#include <string_view>

namespace c10d_torch {
namespace {

constexpr c10::SourceLocation kHere{"c10d", "torch.cpp", 0};

const char* name_of(c10d_reason reason) {
  constexpr std::array kNames{"none",    "timeout",     "peer_lost", "mismatch",
                              "aborted", "unsupported", "internal"};
  const auto index = static_cast<std::size_t>(reason);
  return index < kNames.size() ? kNames[index] : "internal";
}

// In the words that users of PyTorch search for.
std::string in_words(const c10d_failure& failure) {
  std::string text = failure.message;
  constexpr std::string_view kTimedOut = "c10d timed_out ";
  if (text.starts_with(kTimedOut)) text.replace(0, kTimedOut.size(), "c10d: Timed out ");
  return text;
}

}  // namespace

Failure::Failure(const c10d_failure& failure)
    : code(failure.code),
      reason(name_of(failure.reason)),
      message(in_words(failure)),
      host(failure.host),
      group(failure.group),
      op(failure.op),
      rank(failure.rank),
      pid(failure.pid),
      sequence(failure.sequence) {}

Error::Error(const c10d_failure& failure, const std::string& before)
    : BaseError(kHere, before + in_words(failure)), failure(failure) {
  this->failure.message = before + this->failure.message;
}

Unsupported::Unsupported(const std::string& why) : NotImplementedError(kHere, "c10d: " + why) {}

Invalid::Invalid(const std::string& why) : ValueError(kHere, "c10d: " + why) {}

std::exception_ptr exception_of(const c10d_failure& failure) {
  switch (failure.code) {
    case C10D_UNSUPPORTED:
      return std::make_exception_ptr(Unsupported(failure.message));
    case C10D_INVALID_ARGUMENT:
      return std::make_exception_ptr(Invalid(failure.message));
    default:
      return std::make_exception_ptr(Error(failure));
  }
}

void warn_of(const std::exception_ptr& error, const char* what) noexcept try {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& known) {
    TORCH_WARN(what, ": ", known.what_without_backtrace());
  } catch (const std::exception& other) {
    TORCH_WARN(what, ": ", other.what());
  }
} catch (...) {  // a handler of warnings may throw
}

}  // namespace c10d_torch
