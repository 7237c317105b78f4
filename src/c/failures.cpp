// SPDX-License-Identifier: BSD-3-Clause
#include "src/c/failures.h"

#include <iterator>
#include <new>
#include <string>
#include <utility>

namespace c10d { inline namespace v0 { namespace c {
namespace {

constexpr std::pair<Code, c10d_codes> kCodes[] = {
    {Code::peer_died, C10D_PEER_DIED},
    {Code::peer_left, C10D_PEER_LEFT},
    {Code::mismatch, C10D_MISMATCH},
    {Code::revoked, C10D_REVOKED},
    {Code::destroyed, C10D_DESTROYED},
    {Code::forked_child, C10D_FORKED_CHILD},
    {Code::concurrent_use, C10D_CONCURRENT_USE},
    {Code::unsupported, C10D_UNSUPPORTED},
    {Code::out_of_resources, C10D_OUT_OF_RESOURCES},
    {Code::backend_error, C10D_BACKEND_ERROR},
    {Code::link_lost, C10D_LINK_LOST},
    {Code::wrong_job, C10D_WRONG_JOB},
    {Code::version_mismatch, C10D_VERSION_MISMATCH},
    {Code::corrupt, C10D_CORRUPT},
    {Code::not_authenticated, C10D_NOT_AUTHENTICATED},
    {Code::address_in_use, C10D_ADDRESS_IN_USE},
    {Code::unreachable, C10D_UNREACHABLE},
    {Code::store_lost, C10D_STORE_LOST},
    {Code::store_limit, C10D_STORE_LIMIT},
    {Code::store_error, C10D_STORE_ERROR},
    {Code::timed_out, C10D_TIMED_OUT},
};
constexpr std::pair<Reason, c10d_reasons> kReasons[] = {
    {Reason::timeout, C10D_REASON_TIMEOUT},         {Reason::peer_lost, C10D_REASON_PEER_LOST},
    {Reason::mismatch, C10D_REASON_MISMATCH},       {Reason::aborted, C10D_REASON_ABORTED},
    {Reason::unsupported, C10D_REASON_UNSUPPORTED}, {Reason::internal, C10D_REASON_INTERNAL},
};

constexpr bool is_plus_one(const auto& pairs) {
  for (int i = 0; const auto& [ours, number] : pairs)
    if (static_cast<int>(ours) != i || number != ++i) return false;
  return true;
}
static_assert(is_plus_one(kCodes) && std::size(kCodes) == static_cast<int>(Code::timed_out) + 1,
              "the codes of C are those of C++ plus one");
static_assert(is_plus_one(kReasons) &&
                  std::size(kReasons) == static_cast<int>(Reason::internal) + 1,
              "the reasons of C are those of C++ plus one");

c10d_code to_c(Code code) { return static_cast<c10d_code>(code) + 1; }

// What failed last on a thread.
struct Last {
  std::string message, host, group, op;
  c10d_failure failure{sizeof(c10d_failure), C10D_OK, C10D_REASON_NONE, "", -1, 0, "", "", "", 0};

  void keep(const c10d_failure& other) {
    message = other.message;
    host = other.host;
    group = other.group;
    op = other.op;
    failure = other;
    failure.message = message.c_str();
    failure.host = host.c_str();
    failure.group = group.c_str();
    failure.op = op.c_str();
  }
};

Last& last() {
  thread_local Last last;
  return last;
}

c10d_code keep(const c10d_failure& failure) noexcept {
  try {
    last().keep(failure);
  } catch (...) {  // there is no memory for the texts
    c10d_failure& kept = last().failure;
    kept = {sizeof(c10d_failure),
            failure.code,
            failure.reason,
            "",
            failure.rank,
            failure.pid,
            "",
            "",
            "",
            failure.sequence};
    kept.message = c10d_code_name(failure.code);
  }
  return failure.code;
}

c10d_code keep(c10d_code code, const char* message) noexcept {
  return keep({sizeof(c10d_failure), code, c10d_reason_of(code), message, -1, 0, "", "", "", 0});
}

}  // namespace

c10d_failure to_c(const DistError& error) noexcept {
  const Failure& known = error.failure();
  const c10d_code code = to_c(known.code);
  return {sizeof(c10d_failure), code,          c10d_reason_of(code), error.what(),
          known.rank,           known.pid,     known.host.c_str(),   known.group.c_str(),
          known.op.c_str(),     known.sequence};
}

c10d_code keep_exception() noexcept {
  try {
    throw;
  } catch (const DistError& error) {
    return keep(to_c(error));
  } catch (const InvalidArgument& error) {
    return keep(C10D_INVALID_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return keep(C10D_NO_MEMORY, "no memory");
  } catch (const std::exception& error) {
    return keep(C10D_INTERNAL, error.what());
  } catch (...) {
    return keep(C10D_INTERNAL, "an exception that is no std::exception");
  }
}

extern "C" {

C10D_C_API const char* c10d_last_error(void) { return last().failure.message; }

C10D_C_API const c10d_failure* c10d_last_failure(void) { return &last().failure; }

C10D_C_API const char* c10d_code_name(c10d_code code) {
  // The names are literals.
  if (code > C10D_OK && code <= C10D_TIMED_OUT)
    return to_string(static_cast<Code>(code - 1)).data();
  switch (code) {
    case C10D_OK:
      return "ok";
    case C10D_INVALID_ARGUMENT:
      return "invalid_argument";
    case C10D_NO_MEMORY:
      return "no_memory";
    case C10D_INTERNAL:
      return "internal";
    case C10D_PENDING:
      return "pending";
    default:
      return "unknown";
  }
}

C10D_C_API c10d_reason c10d_reason_of(c10d_code code) {
  if (code > C10D_OK && code <= C10D_TIMED_OUT)
    return static_cast<c10d_reason>(reason_of(static_cast<Code>(code - 1))) + 1;
  const bool none = code == C10D_OK || code == C10D_PENDING || code == C10D_INVALID_ARGUMENT;
  return none ? C10D_REASON_NONE : C10D_REASON_INTERNAL;
}

}  // extern "C"

}}}  // namespace c10d::v0::c
