// SPDX-License-Identifier: BSD-3-Clause
#include "bench/cli/help.h"

#include <CLI/CLI.hpp>
#include <sstream>
#include <string>

namespace c10d::bench {
namespace {

constexpr std::size_t kHelpWidth = 78;    // of 80: --help-all indents what belongs to a command
constexpr std::size_t kNameColumns = 30;  // columns of the options' names

std::string wrapped(const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string lines;
  std::size_t used = 0;
  for (std::string word; words >> word; used += word.size()) {
    const bool fits = used + 1 + word.size() <= width;
    if (used > 0) lines += fits ? ' ' : '\n';
    used = used > 0 && fits ? used + 1 : 0;
    lines += word;
  }
  return lines;
}

class HelpFormat final : public CLI::Formatter {
 public:
  HelpFormat() { column_width(kNameColumns); }
  // The name of the value. That of a positional is for the completion.
  std::string make_option_opts(const CLI::Option* option) const override {
    const bool has_value = !option->get_positional() && option->get_items_expected_max() > 0;
    return has_value ? " " + option->get_type_name() : "";
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const std::string& otherwise = option->get_default_str();
    if (!otherwise.empty())  // that of a list has brackets
      text += otherwise.starts_with('[') ? " " + otherwise : " [" + otherwise + "]";
    return wrapped(text, kHelpWidth - kNameColumns);
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_format() { return std::make_shared<HelpFormat>(); }

}  // namespace c10d::bench
