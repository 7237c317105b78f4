// SPDX-License-Identifier: BSD-3-Clause
#include "bench/cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

#include "bench/cli/option_table.h"
#include "bench/cli/other_spellings.h"
#include "bench/cli/values.h"
#include "bench/model/cases.h"
#include "bench/model/record.h"
#include "bench/text/command_line.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

// Both spellings of long options are taken: --dry_run is --dry-run.
std::string normalised(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  const std::size_t end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return argument;
}

// Records and messages are UTF-8; an argument goes into both.
void refuse_other_than_utf8(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    try {
      (void)Json(arguments[i]).dump();
    } catch (const nlohmann::json::exception&) {
      throw InvalidArgument(
          fmt::format("argument {} is not UTF-8: {}", i + 1,
                      Json(arguments[i]).dump(-1, ' ', true, Json::error_handler_t::replace)));
    }
  }
}

std::vector<std::string> arguments_of_run(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw InvalidArgument(fmt::format("--replay {}: cannot be read", path));
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("t") || line["t"] != "run" || !line.contains("argv"))
      continue;
    const Json& argv = line["argv"];
    if (!argv.is_array() || !std::all_of(argv.begin(), argv.end(),
                                         [](const Json& argument) { return argument.is_string(); }))
      continue;
    const auto arguments = argv.get<std::vector<std::string>>();
    if (arguments.size() >= 2 && (arguments[1] == "run" || arguments[1] == "compare"))
      return arguments;
  }
  throw InvalidArgument(fmt::format(
      "--replay {}: no run record in it; the file must come from run or compare --json", path));
}

// Whether an option takes a value, by its name; nothing: there is no such option.
std::optional<bool> takes_value(const std::string& name) {
  static const auto by_name = [] {
    RawOptions raw;
    RunOptions options;
    std::map<std::string, bool> takes;
    for (const OptionFacts& facts : option_facts(raw, options))
      for (const std::string& one : split(facts.names)) takes[one] = !facts.is_flag();
    return takes;
  }();
  const auto found = by_name.find(name);
  return found == by_name.end() ? std::nullopt : std::optional(found->second);
}

// Whether the value of an option is the next argument: "--sizes", "-s", "-qs".
bool wants_value(const std::string& argument) {
  if (argument.starts_with("--")) return takes_value(argument).value_or(false);
  if (!argument.starts_with("-")) return false;
  for (std::size_t i = 1; i < argument.size(); ++i) {
    const std::optional<bool> takes = takes_value({'-', argument[i]});
    if (takes != false)
      return takes && i + 1 == argument.size();  // else the value is in this argument
  }
  return false;
}

// Takes out what is neither an option nor the value of one; whether there was any.
bool take_out_ops(std::vector<std::string>& arguments) {
  bool is_value = false;
  return std::erase_if(arguments, [&](const std::string& argument) {
           const bool is_op = !is_value && !argument.starts_with("-");
           is_value = !is_value && wants_value(argument);
           return is_op;
         }) > 0;
}

// With --replay, the arguments of the earlier run take its place, without its outputs; then ranks
// and records see a command line as any other.
void expand_replay(std::vector<std::string>& arguments) {
  const std::optional<std::string> path = take_out(arguments, "--replay");
  if (!path || arguments.empty()) return;
  std::vector<std::string> earlier = arguments_of_run(*path);
  earlier.erase(earlier.begin(), earlier.begin() + 2);
  for (const std::string& name : output_names()) {
    take_out(earlier, name);
    std::vector<std::string> own = arguments;
    std::error_code none;
    if (const auto file = take_out(own, name);
        file && *file != "-" && std::filesystem::equivalent(*file, *path, none))
      throw InvalidArgument(fmt::format("{} {}: this is the file of --replay", name, *file));
  }
  std::vector<std::string> typed(arguments.begin() + 1, arguments.end());
  std::vector<std::string> own = typed;
  if (take_out(own, "--only")) take_out(earlier, "--only");
  if (take_out_ops(typed)) take_out_ops(earlier);
  arguments.insert(arguments.begin() + 1, earlier.begin(), earlier.end());
}

// An op is what `run` takes.
std::string unknown_command_text(const std::string& word,
                                 const std::vector<std::string_view>& commands) {
  std::vector<std::string_view> ops = {"all"};
  for (const OpFacts& facts : op_facts()) ops.push_back(facts.name);
  if (std::ranges::find(ops, word) != ops.end())
    return fmt::format("no command {0}: an op needs a command before it: write run {0}", word);
  const std::string_view command = nearest_name(word, commands);
  const std::string_view op = nearest_name(word, ops);
  return fmt::format("no command {}{}", word,
                     !command.empty() ? fmt::format(": did you mean {}?", command)
                     : !op.empty()    ? fmt::format(": did you mean run {}?", op)
                                      : "");
}

}  // namespace

std::vector<std::string> arguments_of(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  refuse_other_than_utf8(arguments);
  for (std::string& argument : arguments) argument = normalised(argument);
  if (!arguments.empty() && (arguments[0] == "run" || arguments[0] == "compare"))
    arguments = in_our_spelling(arguments, wants_value);
  expand_replay(arguments);
  return arguments;
}

std::vector<std::string> arguments_of_a_set(std::vector<std::string> arguments) {
  for (const std::string& name : output_names()) take_out(arguments, name);
  for (const char* name : {"--against", "--env", "--control", "--equiv", "--min-effect", "--only"})
    take_out(arguments, name);
  return arguments;
}

int report_parse_error(const CLI::App& app, const std::vector<std::string>& arguments,
                       const CLI::ParseError& error) {
  const CLI::App* sub = nullptr;
  for (const CLI::App* candidate : app.get_subcommands({}))
    if (!arguments.empty() && candidate->get_name() == arguments.front()) sub = candidate;
  std::vector<std::string> names;
  for (const CLI::App* one : {&app, sub})
    if (one != nullptr)
      for (const CLI::Option* option : one->get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
        for (const std::string& name : option->get_snames()) names.push_back("-" + name);
      }
  std::vector<std::string_view> commands;
  for (const CLI::App* candidate : app.get_subcommands({}))
    commands.push_back(candidate->get_name());
  std::string text = error.what();
  if (arguments.empty()) {
    text = fmt::format("which command? One of {}", fmt::join(commands, " "));
  } else if (sub == nullptr && takes_value(arguments.front())) {
    text = fmt::format("which command? {0} is an option of run and compare: write run {0}",
                       arguments.front());
  } else if (sub == nullptr && !arguments.front().starts_with("-")) {
    text = unknown_command_text(arguments.front(), commands);
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const std::string& argument : arguments) {
      const bool one_letter = argument.size() > 1 && argument[0] == '-' &&
                              std::isalpha(static_cast<unsigned char>(argument[1])) != 0;
      const std::string name = argument.substr(0, one_letter ? 2 : argument.find('='));
      if (!(one_letter || name.starts_with("--")) ||
          std::find(names.begin(), names.end(), name) != names.end())
        continue;
      const std::string_view near =
          one_letter ? "" : nearest_name(name, {names.begin(), names.end()});
      text = fmt::format("unknown option {}{}", name,
                         near.empty() ? "" : fmt::format(": did you mean {}?", near));
    }
  }
  fmt::print(stderr, "c10d-bench: {}\nc10d-bench {}--help says more.\n", text,
             sub == nullptr ? "" : sub->get_name() + " ");
  return 2;
}

}  // namespace c10d::bench
