// SPDX-License-Identifier: BSD-3-Clause
#include "bench/cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "bench/cli/option_table.h"
#include "bench/model/cases.h"
#include "bench/model/record.h"
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
void refuse_other_than_utf8(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    try {
      (void)Json(words[i]).dump();
    } catch (const nlohmann::json::exception&) {
      throw InvalidArgument(
          fmt::format("argument {} is not UTF-8: {}", i + 1,
                      Json(words[i]).dump(-1, ' ', true, Json::error_handler_t::replace)));
    }
  }
}

// Takes `name VALUE` and `name=VALUE` out of the words; the last value counts.
std::optional<std::string> take_out(std::vector<std::string>& words, const std::string& name) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i < words.size();) {
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
    if (words[i].starts_with(name + "=")) {
      value = words[i].substr(name.size() + 1);
      words.erase(at);
    } else if (words[i] == name && i + 1 < words.size()) {
      value = words[i + 1];
      words.erase(at, at + 2);
    } else {
      ++i;
    }
  }
  return value;
}

std::vector<std::string> words_of_run(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw InvalidArgument(fmt::format("--replay {}: cannot be read", path));
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("t") || line["t"] != "run" || !line.contains("argv"))
      continue;
    const Json& argv = line["argv"];
    if (!argv.is_array() ||
        !std::all_of(argv.begin(), argv.end(), [](const Json& word) { return word.is_string(); }))
      continue;
    const auto words = argv.get<std::vector<std::string>>();
    if (words.size() >= 2 && (words[1] == "run" || words[1] == "compare")) return words;
  }
  throw InvalidArgument(fmt::format(
      "--replay {}: no run record in it; the file must come from run or compare --json", path));
}

// Whether the value of an option is the next word: "--sizes", "-s", "-qs".
bool wants_value(const std::string& word) {
  const auto takes_value = [](const std::string& name) -> std::optional<bool> {
    for (const OptionFacts& facts : option_facts()) {
      const std::string names = fmt::format(",{},", facts.names);
      if (names.find("," + name + ",") != std::string::npos)
        return !std::holds_alternative<bool Options::*>(facts.target);
    }
    return std::nullopt;
  };
  if (word.starts_with("--")) return takes_value(word).value_or(false);
  if (!word.starts_with("-")) return false;
  for (std::size_t i = 1; i < word.size(); ++i) {
    const std::optional<bool> takes = takes_value({'-', word[i]});
    if (takes != false) return takes && i + 1 == word.size();  // else the value is in this word
  }
  return false;
}

// Takes out what is neither an option nor the value of one; whether there was any.
bool take_out_ops(std::vector<std::string>& words) {
  bool is_value = false;
  return std::erase_if(words, [&](const std::string& word) {
           const bool is_op = !is_value && !word.starts_with("-");
           is_value = !is_value && wants_value(word);
           return is_op;
         }) > 0;
}

// With --replay, the words of the earlier run take its place, without its outputs; then ranks and
// records see a command line as any other.
void expand_replay(std::vector<std::string>& words) {
  const std::optional<std::string> path = take_out(words, "--replay");
  if (!path || words.empty()) return;
  std::vector<std::string> earlier = words_of_run(*path);
  earlier.erase(earlier.begin(), earlier.begin() + 2);
  for (const std::string& name : output_names()) {
    take_out(earlier, name);
    std::vector<std::string> own = words;
    std::error_code none;
    if (const auto file = take_out(own, name);
        file && *file != "-" && std::filesystem::equivalent(*file, *path, none))
      throw InvalidArgument(fmt::format("{} {}: this is the file of --replay", name, *file));
  }
  std::vector<std::string> typed(words.begin() + 1, words.end());
  if (take_out_ops(typed)) take_out_ops(earlier);
  words.insert(words.begin() + 1, earlier.begin(), earlier.end());
}

}  // namespace

std::vector<std::string> words_of(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  refuse_other_than_utf8(words);
  for (std::string& word : words) word = normalised(word);
  expand_replay(words);
  return words;
}

int complain(const CLI::App& app, const std::vector<std::string>& words,
             const CLI::ParseError& error) {
  const CLI::App* sub = nullptr;
  for (const CLI::App* candidate : app.get_subcommands({}))
    if (!words.empty() && candidate->get_name() == words.front()) sub = candidate;
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
  if (words.empty()) {
    text = fmt::format("which command? One of {}", fmt::join(commands, " "));
  } else if (sub == nullptr && !words.front().starts_with("-")) {
    const std::string_view near = nearest_name(words.front(), commands);
    text = fmt::format("no command {}{}", words.front(),
                       near.empty() ? "" : fmt::format(": did you mean {}?", near));
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const std::string& word : words) {
      const bool one_letter = word.size() > 1 && word[0] == '-' &&
                              std::isalpha(static_cast<unsigned char>(word[1])) != 0;
      const std::string name = word.substr(0, one_letter ? 2 : word.find('='));
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
