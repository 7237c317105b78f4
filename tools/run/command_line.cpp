// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "c10d/env.h"
#include "src/base/env_table.h"
#include "src/base/suggest.h"
#include "tools/manual/manual.h"
#include "tools/run/args.h"

namespace c10d { inline namespace v0 {
namespace {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(34); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return fmt::format("Usage: {}\n", kUsageLine);
  }
};

void add(CLI::App& app, const OptionRow& row) {
  const auto into = [&](auto* target) -> CLI::Option* {
    using Target = std::remove_pointer_t<decltype(target)>;
    if constexpr (std::is_same_v<Target, bool>) {
      return app.add_flag(row.names, *target, row.help);
    } else {
      CLI::Option* option = app.add_option(row.names, *target, row.help)->type_name(row.value);
      if constexpr (std::is_arithmetic_v<Target>)
        option->check(CLI::Range(static_cast<Target>(row.low), static_cast<Target>(row.high))
                          .description(""));
      if constexpr (std::is_same_v<Target, std::vector<std::string>>)
        option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->expected(1);
      if (!row.among.empty()) option->check(CLI::IsMember(row.among).description(""));
      return option;
    }
  };
  std::visit(into, row.target)->group(row.group);
}

std::string long_name(const CLI::Option& option) {
  return option.get_lnames().empty() ? "-" + option.get_snames().front()
                                     : "--" + option.get_lnames().back();
}

[[noreturn]] void unknown_option(const CLI::App& app, const std::string& name) {
  std::string reason(advice_for(name));
  if (reason.empty()) {
    std::vector<std::string> long_names;
    for (const CLI::Option* option : app.get_options())
      if (!option->get_group().empty())
        for (const std::string& known : option->get_lnames()) long_names.push_back("--" + known);
    const std::vector<std::string_view> views(long_names.begin(), long_names.end());
    const std::string_view near = nearest(name, views);
    if (!near.empty()) reason = fmt::format("did you mean {}?", near);
  }
  usage_error(
      fmt::format("unknown option {}{}", name, reason.empty() ? "" : fmt::format("; {}", reason)));
}

// mpirun takes its long options with one dash too. Here "-wdir" would be the options -w, -d, ...
void check_single_dash(const CLI::App& app, const std::string& text) {
  if (text.size() < 4 || text[1] == '-') return;
  const std::string name = '-' + text.substr(0, text.find('='));
  if (app.get_option_no_throw(name) != nullptr)
    usage_error(fmt::format("unknown option {}; did you mean {}?", name.substr(1), name));
  if (const std::string_view advice = advice_for(name); !advice.empty())
    usage_error(fmt::format("unknown option {}; {}", name.substr(1), advice));
}

// Takes our options off the front of `args`, which then begins with the program: what follows its
// name is its own, whatever it looks like.
std::vector<TypedOption> take_options(const CLI::App& app, std::vector<std::string>& args) {
  std::vector<TypedOption> options;
  std::size_t at = 0;
  while (at < args.size() && args[at].size() > 1 && args[at][0] == '-') {
    std::string text = args[at++];
    if (text == "--") break;
    if (text == "-np") text = "-n";  // mpirun's
    check_single_dash(app, text);
    const bool is_long = text[1] == '-';
    const std::size_t equals = text.find('=');
    std::string name = is_long ? text.substr(0, equals) : text.substr(0, 2);
    std::replace(name.begin(), name.end(), '_', '-');
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) unknown_option(app, name);
    const bool has_value = is_long ? equals != std::string::npos : text.size() > 2;
    if (is_long && equals + 1 == text.size()) usage_error(fmt::format("{} has no value", text));
    text.replace(0, name.size(), name);
    options.push_back({long_name(*option), {text}});
    if (has_value || option->get_items_expected() == 0) continue;
    if (at == args.size()) usage_error(fmt::format("{} needs a value", name));
    options.back().words.push_back(args[at++]);
  }
  args.erase(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(at));
  return options;
}

// PET_* as if typed before everything else, so that what is typed wins.
std::vector<std::string> options_from_environment() {
  std::vector<std::string> options;
  for (const EnvVariable& variable : env_variables()) {
    if (!variable.name.starts_with("PET_")) continue;
    const std::optional<std::string> value = env(variable.name);
    if (!value) continue;
    std::string name = "--";
    for (const char c : variable.name.substr(4))
      name += c == '_' ? '-' : static_cast<char>(c - 'A' + 'a');
    options.push_back(name + "=" + *value);
  }
  return options;
}

}  // namespace

CommandLine read_command_line(int argc, char** argv) {
  CommandLine line;
  CLI::App app(kDescription, "c10d-run");
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(kFooter);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (const OptionRow& row : option_table(line.raw)) add(app, row);
  if (const auto manual = manual_of(app, argc, argv)) throw EarlyExit{0, *manual};

  line.command.assign(argv + 1, argv + argc);
  line.typed = take_options(app, line.command);
  std::vector<std::string> options = options_from_environment();
  for (const TypedOption& option : line.typed)
    options.insert(options.end(), option.words.begin(), option.words.end());
  std::reverse(options.begin(), options.end());  // as CLI11 wants them
  try {
    app.parse(options);
  } catch (const CLI::CallForHelp&) {
    throw EarlyExit{0, app.help()};
  } catch (const CLI::ParseError& error) {
    usage_error(error.what());
  }
  return line;
}

}}  // namespace c10d::v0
