// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

namespace c10d { inline namespace v0 {

// Which backend serves which kind of memory. They point into the text that they were read from.
struct BackendNames {
  std::string_view cpu, cuda;
};

// Of "cuda:X,cpu:Y", of a part of it, or of one name for both. Nothing if it is malformed.
inline std::optional<BackendNames> backend_names_of(std::string_view text) noexcept {
  constexpr std::string_view kCpu = "cpu:", kCuda = "cuda:";
  if (!text.starts_with(kCpu) && !text.starts_with(kCuda)) return BackendNames{text, text};
  BackendNames names;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const bool is_cpu = part.starts_with(kCpu);
    std::string_view& name = is_cpu ? names.cpu : names.cuda;
    if ((!is_cpu && !part.starts_with(kCuda)) || !name.empty() || part.back() == ':') return {};
    name = part.substr(is_cpu ? kCpu.size() : kCuda.size());
  }
  return names;
}

// Whether groups of it go on when one of several networks of C10D_NET_INTERFACE is cut.
bool outlives_networks(std::string_view backend);  // in src/backends/factory.cpp

}}  // namespace c10d::v0
