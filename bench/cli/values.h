// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/error.h"

// Values of options as text. All of these throw InvalidArgument that names the option.
namespace c10d::bench {

// The parts between commas; empty ones are left out.
std::vector<std::string> split(const std::string& text);
// A size, from 1 to kLargestSize.
std::uint64_t bytes_of(const char* option, const std::string& text);
// Above zero.
double seconds_of(const char* option, const std::string& text);
// From 0 to 1.
double fraction_of(const char* option, const std::string& text, const char* what);

// The value; without one, throws "OPTION TEXT: not WHAT".
template <class T>
T must(std::optional<T> value, const char* option, const std::string& text, const char* what) {
  if (!value) throw InvalidArgument(fmt::format("{} {}: not {}", option, text, what));
  return *value;
}

// The value of an option that takes one of a few names.
template <class T>
T one_of(const char* option, const std::string& text,
         const std::vector<std::pair<std::string_view, T>>& values) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : values) {
    if (text == name) return value;
    names.push_back(name);
  }
  throw InvalidArgument(fmt::format("{} {}: one of {}", option, text, fmt::join(names, ", ")));
}

template <class T>
void keep_first_of_each(std::vector<T>& values) {
  std::set<T> seen;
  std::erase_if(values, [&](const T& value) { return !seen.insert(value).second; });
}

}  // namespace c10d::bench
