// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace c10d { inline namespace v0 {

// The manual page (--print-man) or the completion for bash (--print-completion) of a program, made
// from its commands and options. Nothing, if the command line does not consist of one of these two
// words. A value name of lower-case words, "on|off", is the list of values to complete.
std::optional<std::string> manual_of(const CLI::App& app, int argc, const char* const* argv);

}}  // namespace c10d::v0
