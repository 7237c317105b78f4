// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/agent.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "c10d/env.h"
#include "src/base/host.h"
#include "tools/run/args.h"

namespace c10d { inline namespace v0 {
namespace {

// %h and %c in one pass: a host may have a %, and a command anything.
std::string expanded(std::string_view word, std::string_view host, std::string_view command) {
  std::string text;
  for (std::size_t at = 0; at < word.size(); ++at) {
    const std::string_view mark = word.substr(at, 2);
    if (mark != "%h" && mark != "%c") {
      text += word[at];
      continue;
    }
    text += mark == "%h" ? host : command;
    ++at;
  }
  return text;
}

bool is_this_host(const std::string& host) {
  return host == host_name() || host == "localhost" || host == "127.0.0.1" || host == "::1";
}

// An allocation of Slurm may know no ssh between its hosts. A step of one task would bind it, and
// the ranks below it, to one CPU.
std::string default_agent() {
  const bool is_in_slurm =
      env("SLURM_JOB_ID") && (env("SLURM_JOB_NODELIST") || env("SLURM_NODELIST"));
  return is_in_slurm ? "srun --overlap --cpu-bind=none -N1 -n1 -w %h"
                     : "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ControlPath=none %h %c";
}

}  // namespace

std::vector<std::string> agent_of(const std::string& typed) {
  const std::string text = typed.empty() ? default_agent() : typed;
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  if (text.find("%h") == text.npos)
    usage_error(
        fmt::format("--agent '{}': write %h for the host, and %c for the command as one "
                    "word for a shell; without %c it follows as words",
                    text));
  return words;
}

std::vector<std::string> command_on(const std::string& host,
                                    const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& agent) {
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  if (is_this_host(host)) return words;
  std::string shell_line;
  for (const std::string& word : words)
    shell_line += (shell_line.empty() ? "" : " ") + quoted(word);
  std::vector<std::string> command;
  bool is_in = false;
  for (const std::string& word : agent) {
    is_in = is_in || word.find("%c") != word.npos;
    command.push_back(expanded(word, host, shell_line));
  }
  if (!is_in) command.insert(command.end(), words.begin(), words.end());
  return command;
}

Child start_agent(SpawnOptions options) {
  options.path = find_program(options.command.front());
  for (char** entry = environ; *entry != nullptr; ++entry) options.environment.emplace_back(*entry);
  return spawn(options);
}

}}  // namespace c10d::v0
