// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/failure_text.h"

#include <fmt/format.h>

#include <cstdio>
#include <new>
#include <string_view>

namespace c10d { inline namespace v0 {

std::size_t fitting(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text.size();
  std::size_t fits = most;  // bytes of a character after the first begin with the bits 10
  while (fits > 0 && most - fits < 3 && (text[fits] & 0xC0) == 0x80) --fits;
  return fits;
}

// Its facts, its host, its message, one a line.
std::string to_text(const Failure& failure) {
  return fmt::format("{} {} {} {} {}\n{}\n{}", static_cast<int>(failure.code), failure.rank,
                     failure.pid, failure.sequence, failure.op.empty() ? "-" : failure.op,
                     failure.host, failure.message);
}

Failure from_text(const std::string& text) {
  const std::size_t first = text.find('\n');
  const std::size_t second = first == text.npos ? first : text.find('\n', first + 1);
  int code = 0;
  char op[32] = {};
  Failure failure;
  long long pid = 0;
  unsigned long long sequence = 0;
  if (second == text.npos || std::sscanf(text.c_str(), "%d %d %lld %llu %31s", &code, &failure.rank,
                                         &pid, &sequence, op) != 5)
    return {.code = Code::corrupt, .message = "another rank's failure cannot be read"};
  const bool known = code >= 0 && code <= static_cast<int>(Code::timed_out);
  failure.code = known ? static_cast<Code>(code) : Code::corrupt;
  failure.pid = pid;
  failure.sequence = sequence;
  if (std::string_view(op) != "-") failure.op = op;
  failure.host = text.substr(first + 1, second - first - 1);
  failure.message = text.substr(second + 1);
  return failure;
}

Failure failure_from_exception(const std::exception& error, std::string_view thrower) {
  if (const auto* ours = dynamic_cast<const DistError*>(&error)) return ours->failure();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {.code = Code::out_of_resources, .message = "no memory left"};
  return {.code = Code::backend_error,
          .message = fmt::format("{} threw: {}", thrower, error.what())};
}

}}  // namespace c10d::v0
