// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace c10d { inline namespace v0 {

// One section of collect_facts() for people, at most 100 columns wide.
std::string section_text(std::string_view section, const nlohmann::ordered_json& facts);

// What most people want to know, on one screen: version, host, launcher, backends, and those C10D_*
// variables that are set.
std::string overview_text(const nlohmann::ordered_json& facts);

// The same of the environment, without the foreign variables that are unset.
std::string short_environment_text(const nlohmann::ordered_json& environment);

}}  // namespace c10d::v0
