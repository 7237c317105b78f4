// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <string>

namespace c10d { inline namespace v0 {

// tcp://host:port?key=value&..., with [::1] for IPv6, or file:///path?...
struct Url {
  std::string text;
  std::string scheme;
  std::string host;  // tcp
  int port = 0;      // tcp
  std::string path;  // file
  std::map<std::string, std::string> query;

  // The value of `key` as a whole number. Throws InvalidArgument when it is none.
  std::optional<int> integer(const std::string& key) const;
};

// Throws InvalidArgument that shows the text and what is wrong with it.
Url parse_url(const std::string& text);

}}  // namespace c10d::v0
