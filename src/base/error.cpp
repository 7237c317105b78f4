// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace c10d { inline namespace v0 {
namespace {

enum class Origin { backend, network, store, timeout };

struct CodeFacts {
  std::string_view name;
  Reason reason;
  Origin origin;
};

// By Code, in its order.
constexpr std::array kCodes = {
    CodeFacts{"peer_died", Reason::peer_lost, Origin::backend},
    CodeFacts{"peer_left", Reason::peer_lost, Origin::backend},
    CodeFacts{"mismatch", Reason::mismatch, Origin::backend},
    CodeFacts{"revoked", Reason::aborted, Origin::backend},
    CodeFacts{"destroyed", Reason::aborted, Origin::backend},
    CodeFacts{"forked_child", Reason::aborted, Origin::backend},
    CodeFacts{"concurrent_use", Reason::aborted, Origin::backend},
    CodeFacts{"unsupported", Reason::unsupported, Origin::backend},
    CodeFacts{"out_of_resources", Reason::internal, Origin::backend},
    CodeFacts{"backend_error", Reason::internal, Origin::backend},
    CodeFacts{"link_lost", Reason::peer_lost, Origin::network},
    CodeFacts{"wrong_job", Reason::mismatch, Origin::network},
    CodeFacts{"version_mismatch", Reason::mismatch, Origin::network},
    CodeFacts{"corrupt", Reason::internal, Origin::network},
    CodeFacts{"not_authenticated", Reason::internal, Origin::network},
    CodeFacts{"address_in_use", Reason::internal, Origin::network},
    CodeFacts{"unreachable", Reason::internal, Origin::network},
    CodeFacts{"store_lost", Reason::peer_lost, Origin::store},
    CodeFacts{"store_limit", Reason::internal, Origin::store},
    CodeFacts{"store_error", Reason::internal, Origin::store},
    CodeFacts{"timed_out", Reason::timeout, Origin::timeout},
};
static_assert(kCodes.size() == static_cast<std::size_t>(Code::timed_out) + 1);

// A backend of the program's own may throw any.
constexpr CodeFacts kUnknownCode{"unknown", Reason::internal, Origin::backend};

const CodeFacts& facts(Code code) noexcept {
  const auto index = static_cast<std::size_t>(code);
  return index < kCodes.size() ? kCodes[index] : kUnknownCode;
}

std::string one_line(const Failure& failure) {
  std::string text = fmt::format("c10d {}", to_string(failure.code));
  if (!failure.op.empty()) {
    text += fmt::format(" in {}", failure.op);
    if (failure.sequence != 0) text += fmt::format(" #{}", failure.sequence);
  }
  if (!failure.group.empty()) text += fmt::format(" of group \"{}\"", failure.group);
  text += ": " + failure.message;
  if (failure.rank >= 0) {
    text += fmt::format(" [rank {}", failure.rank);
    if (!failure.host.empty()) text += fmt::format(", host {}", failure.host);
    if (failure.pid != 0) text += fmt::format(", pid {}", failure.pid);
    text += "]";
  }
  // A message may hold what a program gave to abort(), or what a library threw.
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::string_view to_string(Reason reason) noexcept {
  constexpr std::array<std::string_view, 6> names = {"timeout", "peer_lost",   "mismatch",
                                                     "aborted", "unsupported", "internal"};
  const auto index = static_cast<std::size_t>(reason);
  return index < names.size() ? names[index] : "unknown";
}

std::string_view to_string(Code code) noexcept { return facts(code).name; }
Reason reason_of(Code code) noexcept { return facts(code).reason; }

DistError::DistError(Failure failure)
    : std::runtime_error(one_line(failure)),
      failure_(std::make_shared<const Failure>(std::move(failure))) {}
DistError::DistError(const DistError&) noexcept = default;
DistError::~DistError() = default;
DistBackendError::~DistBackendError() = default;
DistNetworkError::~DistNetworkError() = default;
DistStoreError::~DistStoreError() = default;
DistTimeoutError::~DistTimeoutError() = default;
InvalidArgument::~InvalidArgument() = default;

void throw_failure(Failure failure) {
  switch (facts(failure.code).origin) {
    case Origin::network:
      throw DistNetworkError(std::move(failure));
    case Origin::store:
      throw DistStoreError(std::move(failure));
    case Origin::timeout:
      throw DistTimeoutError(std::move(failure));
    case Origin::backend:
      break;
  }
  throw DistBackendError(std::move(failure));
}

}}  // namespace c10d::v0
