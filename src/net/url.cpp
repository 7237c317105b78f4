// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/url.h"

#include <fmt/format.h>

#include <charconv>

#include "c10d/error.h"

namespace c10d { inline namespace v0 {
namespace {

[[noreturn]] void reject(const std::string& text, const std::string& why) {
  throw InvalidArgument(
      fmt::format("'{}': {}; known: env://, tcp://host:port, file:///path", text, why));
}

std::optional<int> to_integer(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void parse_query(Url& url, std::string_view query) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    if (equals == pair.npos || equals == 0)
      reject(url.text, fmt::format("'{}' is not key=value", pair));
    const std::string key(pair.substr(0, equals));
    if (key != "rank" && key != "world_size")
      reject(url.text, fmt::format("unknown key '{}' (rank, world_size)", key));
    if (!url.query.emplace(key, pair.substr(equals + 1)).second)
      reject(url.text, fmt::format("'{}' is given twice", key));
  }
}

void parse_address(Url& url, std::string_view rest) {
  const std::size_t colon = rest.rfind(':');
  const bool bracketed = rest.starts_with('[');
  if (colon == rest.npos || (bracketed && (colon == 0 || rest[colon - 1] != ']')))
    reject(url.text, "host:port is missing the port");
  url.host = bracketed ? rest.substr(1, colon - 2) : rest.substr(0, colon);
  const auto port = to_integer(rest.substr(colon + 1));
  if (url.host.empty() || !port || *port < 1 || *port > 65535)
    reject(url.text, "the host is missing, or the port is no number from 1 to 65535");
  url.port = *port;
}

}  // namespace

std::optional<int> Url::integer(const std::string& key) const {
  const auto found = query.find(key);
  if (found == query.end()) return std::nullopt;
  const auto value = to_integer(found->second);
  if (!value) reject(text, fmt::format("{}={} is not a whole number", key, found->second));
  return value;
}

Url parse_url(const std::string& text) {
  Url url;
  url.text = text;
  std::string_view rest = text;
  const std::size_t colon = rest.find("://");
  if (colon == rest.npos) reject(text, "no scheme");
  url.scheme = rest.substr(0, colon);
  rest.remove_prefix(colon + 3);
  const std::size_t question = rest.find('?');
  if (question != rest.npos) parse_query(url, rest.substr(question + 1));
  rest = rest.substr(0, question);
  if (url.scheme == "tcp")
    parse_address(url, rest);
  else if (url.scheme == "file" && rest.starts_with('/'))
    url.path = rest;
  else
    reject(text, url.scheme == "file" ? "a file needs an absolute path" : "unknown scheme");
  return url;
}

}}  // namespace c10d::v0
