// SPDX-License-Identifier: BSD-3-Clause
#include "bench/cli/values.h"

#include <algorithm>

#include "bench/model/cases.h"
#include "bench/text/format.h"

namespace c10d::bench {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  while (from <= text.size()) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    if (to > from) parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

std::uint64_t bytes_of(const char* option, const std::string& text) {
  const std::uint64_t bytes =
      must(parse_bytes(text), option, text, "a size; write 8, 4K, 16M or 1G");
  if (bytes == 0) throw InvalidArgument(fmt::format("{} {}: must be above zero", option, text));
  if (bytes > kLargestSize)
    throw InvalidArgument(fmt::format("{} {}: the largest size is 4T", option, text));
  return bytes;
}

double seconds_of(const char* option, const std::string& text) {
  const double seconds =
      must(parse_seconds(text), option, text, "a duration; write 0.05s or 200ms");
  if (seconds <= 0) throw InvalidArgument(fmt::format("{} {}: must be above zero", option, text));
  return seconds;
}

double fraction_of(const char* option, const std::string& text, const char* what) {
  const double fraction = must(parse_fraction(text), option, text, what);
  if (fraction > 1) throw InvalidArgument(fmt::format("{} {}: not {}", option, text, what));
  return fraction;
}

}  // namespace c10d::bench
