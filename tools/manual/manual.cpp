// SPDX-License-Identifier: BSD-3-Clause
#include "tools/manual/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "c10d/capability.h"

namespace c10d { inline namespace v0 {
namespace {

// Those that --help-all shows, in their order.
std::vector<const CLI::Option*> options_of(const CLI::App& app, bool positional) {
  return app.get_options([&](const CLI::Option* option) {
    return option->get_positional() == positional && !option->get_group().empty();
  });
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> option_names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options_of(app, false))
    for (const std::string& name : names_of(*option)) names.push_back(name);
  return names;
}

bool is_flag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

// The words of "on|off"; none of "N" or "K|RANK:K,..".
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string text = option.get_type_name();
  std::vector<std::string> words;
  if (text.find('|') == std::string::npos ||
      std::any_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; }))
    return words;
  std::istringstream parts(text);
  for (std::string word; std::getline(parts, word, '|');) words.push_back(word);
  return words;
}

// Text as roff prints it.
std::string roff(std::string_view text) {
  std::string escaped;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else
      escaped += c;
    at_start = c == '\n';
  }
  return escaped;
}

std::string man_options(const CLI::App& app) {
  std::string text;
  for (const bool positional : {true, false})
    for (const CLI::Option* option : options_of(app, positional)) {
      if (app.get_parent() != nullptr && option->check_name("--help")) continue;
      std::vector<std::string> names;
      for (const std::string& name : names_of(*option))
        names.push_back(fmt::format("\\fB{}\\fR", roff(name)));
      if (positional) names = {fmt::format("\\fI{}\\fR", roff(option->get_name(true, false)))};
      text += fmt::format(".TP\n{}", fmt::join(names, ", "));
      if (!positional && !is_flag(*option))
        text += fmt::format(" \\fI{}\\fR", roff(option->get_type_name()));
      text += '\n' + roff(option->get_description());
      if (const std::string& otherwise = option->get_default_str(); !otherwise.empty())
        text += fmt::format(" [{}]", roff(otherwise));
      text += '\n';
    }
  return text;
}

std::string usage_of(const CLI::App& app, const std::string& name) {
  const auto* formatter = dynamic_cast<const CLI::Formatter*>(app.get_formatter().get());
  std::string usage = formatter == nullptr ? name : formatter->make_usage(&app, name);
  if (const std::size_t colon = usage.find(": "); colon != std::string::npos)
    usage.erase(0, colon + 2);
  return usage.substr(0, usage.find('\n'));
}

std::string man_page(const CLI::App& app) {
  const std::string description = app.get_description();
  std::string headline = description.substr(0, description.find('\n'));
  if (headline.ends_with('.')) headline.pop_back();
  std::string text = fmt::format(
      ".TH {0} 1 \"\" \"c10d {1}\"\n.SH NAME\n{0} \\- {2}\n.SH SYNOPSIS\n{3}\n"
      ".SH DESCRIPTION\n{4}\n",
      roff(app.get_name()), kVersion, roff(headline), roff(usage_of(app, app.get_name())),
      roff(description));
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  if (!commands.empty()) text += ".SH COMMANDS\n";
  std::vector<std::string> last_names;
  std::string last;
  for (const CLI::App* command : commands) {
    text += fmt::format(".SS {}\n{}\n", roff(usage_of(*command, command->get_name())),
                        roff(command->get_description()));
    const std::vector<std::string> names = option_names_of(*command);
    text += names == last_names ? fmt::format(".P\nThe options are those of {}.\n", roff(last))
                                : man_options(*command);
    last_names = names;
    last = command->get_name();
  }
  return text + fmt::format(".SH OPTIONS\n{}.SH NOTES\n.nf\n{}\n.fi\n", man_options(app),
                            roff(app.get_footer()));
}

// "words='a b'" for the words that can follow.
std::string words_of(const std::vector<std::string>& words) {
  return fmt::format("words='{}'", fmt::join(words, " "));
}

// The branches of one command, of which "" is the program itself.
struct Branches {
  std::string values;  // by "COMMAND OPTION": what the option takes
  std::string words;   // by "COMMAND WORD": options, then commands and positionals
};

void add_branches(const CLI::App& app, const std::string& command, Branches& branches) {
  const auto branch = [](const std::vector<std::string>& patterns, const std::string& action) {
    return fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "), action);
  };
  std::vector<std::string> words, files;
  for (const CLI::App* one : app.get_subcommands({})) words.push_back(one->get_name());
  for (const CLI::Option* option : options_of(app, true))
    for (const std::string& word : choices_of(*option)) words.push_back(word);
  for (const CLI::Option* option : options_of(app, false)) {
    if (is_flag(*option)) continue;
    const std::vector<std::string> choices = choices_of(*option);
    std::vector<std::string> patterns;
    for (const std::string& name : names_of(*option))
      patterns.push_back(fmt::format("'{} {}'", command, name));
    if (choices.empty())
      files.insert(files.end(), patterns.begin(), patterns.end());
    else
      branches.values += branch(patterns, words_of(choices));
  }
  if (!files.empty()) branches.values += branch(files, "return");
  branches.words += branch({fmt::format("'{} -'*", command)}, words_of(option_names_of(app)));
  branches.words += branch({fmt::format("'{} '*", command)}, words_of(words));
}

std::string completion(const CLI::App& app) {
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  Branches branches;
  for (const CLI::App* command : commands) add_branches(*command, command->get_name(), branches);
  add_branches(app, "", branches);
  std::string function = "_" + app.get_name();
  std::replace(function.begin(), function.end(), '-', '_');
  // Where the function offers nothing, files are offered.
  return fmt::format(R"(# Completion of {0} for bash; zsh needs bashcompinit.
{1}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= words=
{2}  # "--option=value" comes as three words.
  if [[ $word == = ]]; then
    word=
  elif [[ $before == = ]]; then
    before=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  COMPREPLY=()
  case "$command $before" in
{3}    *) case "$command $word" in
{4}    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F {1} {0}
)",
                     app.get_name(), function,
                     commands.empty() ? "" : "  ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}\n",
                     branches.values, branches.words);
}

}  // namespace

std::optional<std::string> manual_of(const CLI::App& app, int argc, const char* const* argv) {
  const std::string_view word = argc == 2 ? argv[1] : "";
  if (word == "--print-man") return man_page(app);
  if (word == "--print-completion") return completion(app);
  return std::nullopt;
}

}}  // namespace c10d::v0
