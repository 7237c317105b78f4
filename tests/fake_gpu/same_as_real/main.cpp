// SPDX-License-Identifier: BSD-3-Clause
// Reads how the driver and NCCL behave, one process per behaviour, and compares with what was read
// before. usage() says how.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "tests/fake_gpu/same_as_real/probe.h"

namespace same_as_real { namespace {

int usage() {
  std::puts(
      "usage: same_as_real [options]\n"
      "  --cuda FILE      the driver (libcuda.so.1)\n"
      "  --nccl FILE      NCCL (libnccl.so.2)\n"
      "  --only PREFIX    only behaviours whose names begin with one of these (repeatable)\n"
      "  --skip PREFIX    none of these (repeatable)\n"
      "  --expected FILE  compare with what was read before; exit 1 if something differs\n"
      "  --write FILE     write what was read, for --expected\n"
      "  --log DIR        what the behaviours print, a file each\n"
      "  --jobs N         so many at a time (1)\n"
      "  --patience N     waits are N times as long (1): for a busy machine without a GPU\n"
      "  --list           their names\n"
      "One line of JSON for each behaviour: facts are compared, notes are not. Exit 2: no GPU.");
  return 2;
}

struct Fact {
  std::string kind, key, value;
};
struct Outcome {
  std::vector<Fact> lines;
  std::string end;  // "exit 0", "signal 11", "timeout"
  double ms = 0;
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 32) continue;
    out += c;
  }
  return out + '"';
}

std::string json(const Behaviour& behaviour, const Outcome& outcome) {
  std::string out = "{\"name\":" + quoted(behaviour.name) + ",\"end\":" + quoted(outcome.end);
  for (const std::string kind : {"fact", "note"}) {
    out += ",\"" + kind + "s\":{";
    const char* separator = "";
    for (const Fact& fact : outcome.lines) {
      if (fact.kind != kind) continue;
      out += separator + quoted(fact.key) + ":" + quoted(fact.value);
      separator = ",";
    }
    out += "}";
  }
  return out + ",\"ms\":" + std::to_string(static_cast<long>(outcome.ms)) + "}";
}

// One running behaviour.
struct Running {
  const Behaviour* behaviour = nullptr;
  pid_t pid = -1;
  int descriptor = -1;
  std::string text;
  Clock::time_point start;
};

struct Command {
  std::string self, log;
  std::vector<std::string> only, skip;
  std::string expected, write;
  int jobs = 1;
};

Running start(const Command& command, const Behaviour& behaviour) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::exit(3);
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!command.log.empty()) {
      const std::string path = command.log + "/" + behaviour.name;
      const int log = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      if (log >= 0) {
        dup2(log, 1);
        dup2(log, 2);
      }
    }
    const int out = fcntl(ends[1], F_DUPFD, 10);
    const std::string descriptor = std::to_string(out);
    const std::string patience = std::to_string(options().patience);
    execl(command.self.c_str(), command.self.c_str(), "--read", behaviour.name, descriptor.c_str(),
          "--cuda", options().cuda.c_str(), "--nccl", options().nccl.c_str(), "--patience",
          patience.c_str(), nullptr);
    _exit(127);
  }
  setpgid(pid, pid);
  close(ends[1]);
  return {&behaviour, pid, ends[0], {}, Clock::now()};
}

std::vector<Fact> parse(const std::string& text) {
  std::vector<Fact> facts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const std::size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (second != std::string::npos) {
      facts.push_back({line.substr(0, first), line.substr(first + 1, second - first - 1),
                       line.substr(second + 1)});
    }
    at = end + 1;
  }
  return facts;
}

void drain(Running& running) {
  char buffer[4096];
  pollfd ready{running.descriptor, POLLIN, 0};
  while (poll(&ready, 1, 0) > 0) {
    const ssize_t got = read(running.descriptor, buffer, sizeof buffer);
    if (got <= 0) return;
    running.text.append(buffer, static_cast<std::size_t>(got));
  }
}

// Whether it has ended, by itself or for lack of time.
bool finish(Running& running, Outcome& outcome) {
  drain(running);
  int status = 0;
  outcome.ms = ms_since(running.start);
  if (waitpid(running.pid, &status, WNOHANG) == running.pid) {
    outcome.end = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                      : "exit " + std::to_string(WEXITSTATUS(status));
  } else if (outcome.ms > running.behaviour->seconds * 1000.0 * options().patience) {
    kill(-running.pid, SIGKILL);
    waitpid(running.pid, &status, 0);
    outcome.end = "timeout";
  } else {
    return false;
  }
  kill(-running.pid, SIGKILL);  // what it left behind
  drain(running);
  close(running.descriptor);
  outcome.lines = parse(running.text);
  return true;
}

bool begins_with_one_of(const std::string& name, const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) {
    if (name.compare(0, prefix.size(), prefix) == 0) return true;
  }
  return false;
}

using Outcomes = std::map<std::string, Outcome>;
using Wanted = std::vector<const Behaviour*>;

// Those of the program itself only when they are named.
Wanted wanted_by(const Command& command) {
  Wanted wanted;
  for (const Behaviour& behaviour : behaviours()) {
    const bool of_the_program = std::strncmp(behaviour.name, "self.", 5) == 0;
    if (command.only.empty() ? of_the_program : !begins_with_one_of(behaviour.name, command.only)) {
      continue;
    }
    if (!begins_with_one_of(behaviour.name, command.skip)) wanted.push_back(&behaviour);
  }
  return wanted;
}

// Why nothing can be read: asked in a process of its own, so that this one stays as it is.
bool can_read(const Wanted& wanted) {
  bool gpu = false, library = false;
  for (const Behaviour* behaviour : wanted) {
    gpu = gpu || behaviour->needs != Needs::nothing;
    library = library || behaviour->needs == Needs::nccl;
  }
  const auto no = [](const std::string& why) {
    std::fprintf(stderr, "same_as_real: %s\n", why.c_str());
    return 1;
  };
  return !gpu || in_child([&] {
                   const cu::Api driver = cu::open_api(options().cuda);
                   if (!driver) return no(driver.why);
                   const int code = driver.init(0);
                   if (code != 0) return no("no GPU: cuInit gave " + std::to_string(code));
                   const nccl::Api api = library ? nccl::open_api(options().nccl) : nccl::Api();
                   return api ? 0 : no(api.why + ", or --skip nccl");
                 }) == "0";
}

Outcomes read_all(const Command& command, const Wanted& wanted) {
  Outcomes outcomes;
  std::vector<Running> running;
  std::size_t next = 0;
  while (next < wanted.size() || !running.empty()) {
    while (next < wanted.size() && running.size() < static_cast<std::size_t>(command.jobs)) {
      running.push_back(start(command, *wanted[next++]));
    }
    for (std::size_t i = 0; i < running.size();) {
      Outcome outcome;
      if (!finish(running[i], outcome)) {
        ++i;
        continue;
      }
      std::puts(json(*running[i].behaviour, outcome).c_str());
      std::fflush(stdout);
      outcomes[running[i].behaviour->name] = std::move(outcome);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return outcomes;
}

using Key = std::pair<std::string, std::string>;  // behaviour and fact
using Values = std::map<Key, std::string>;

// Behaviour, fact and value, separated by tabs; # begins a comment. A fourth field says that nobody
// has read it on a GPU: the value is assumed, and the stand-in does the same.
constexpr std::string_view kUnproven = "unproven";
struct Row {
  std::string value;
  bool is_unproven = false;
};
using Rows = std::map<Key, Row>;

Values values_of(const Outcomes& outcomes) {
  Values values;
  for (const auto& [name, outcome] : outcomes) {
    values[{name, "end"}] = outcome.end;
    for (const Fact& fact : outcome.lines) {
      if (fact.kind == "fact") values[{name, fact.key}] = fact.value;
    }
  }
  return values;
}

void write_values(const std::string& path, const Values& values) {
  std::ofstream file(path);
  for (const auto& [key, value] : values) {
    file << key.first << '\t' << key.second << '\t' << value << '\n';
  }
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// What was read before of the behaviours that were read now; nothing if the file cannot be read.
std::optional<Rows> expected_of(const std::string& path, const Outcomes& outcomes) {
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr, "same_as_real: cannot read %s\n", path.c_str());
    return std::nullopt;
  }
  Rows expected;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> fields = fields_of(line);
    const bool is_unproven = fields.size() == 4 && fields[3] == kUnproven;
    if (fields.size() != 3 && !is_unproven) {
      std::fprintf(stderr, "same_as_real: %s: neither three fields nor a fourth \"unproven\": %s\n",
                   path.c_str(), line.c_str());
      return std::nullopt;
    }
    if (outcomes.count(fields[0]) != 0) {
      expected[{fields[0], fields[1]}] = {fields[2], is_unproven};
    }
  }
  return expected;
}

// Prints a fact that needs to be told, unless it was read before and is the same. No value: it was
// not read now. No row: there is none.
enum class Verdict { same, different, unproven };
Verdict tell(const Key& key, const std::string* value, const Row* row) {
  const std::string fact =
      key.first + " " + key.second + (value ? " is " + *value : " was not read");
  const bool is_same = value && row && *value == row->value;
  if (row && !row->is_unproven) {
    if (is_same) return Verdict::same;
    std::printf("DIFFERENT: %s, expected %s\n", fact.c_str(), row->value.c_str());
    return Verdict::different;
  }
  if (!row) {
    std::printf("unproven: %s\n", fact.c_str());
  } else if (is_same) {
    std::printf("unproven: %s, as assumed\n", fact.c_str());
  } else {
    std::printf("NOT AS ASSUMED: %s, assumed %s\n", fact.c_str(), row->value.c_str());
  }
  return Verdict::unproven;
}

int compare(const std::string& path, const Values& values, const Outcomes& outcomes) {
  const std::optional<Rows> expected = expected_of(path, outcomes);
  if (!expected) return 2;
  std::map<Verdict, int> told;
  for (const auto& [key, value] : values) {
    const auto found = expected->find(key);
    ++told[tell(key, &value, found == expected->end() ? nullptr : &found->second)];
  }
  for (const auto& [key, row] : *expected) {
    if (values.count(key) == 0) ++told[tell(key, nullptr, &row)];
  }
  const int different = told[Verdict::different];
  std::printf("%zu facts, %d different, %d unproven\n", values.size(), different,
              told[Verdict::unproven]);
  return different == 0 ? 0 : 1;
}

// Of the process that reads one behaviour.
int read_one(const std::string& name, int descriptor) {
  for (const Behaviour& behaviour : behaviours()) {
    if (name != behaviour.name) continue;
    behaviour.read(Reading(descriptor));
    std::fflush(nullptr);
    _exit(0);  // the driver's and NCCL's own ends are behaviours of their own
  }
  return 2;
}

struct Arguments {
  Command command;
  std::string read;  // the behaviour that this process reads
  int descriptor = -1;
  bool list = false;
  bool ok = true;
};

Arguments parse_arguments(const std::vector<std::string>& words) {
  Arguments all;
  Command& command = all.command;
  for (std::size_t i = 0; i < words.size() && all.ok; ++i) {
    const auto value = [&]() -> std::string {
      all.ok = i + 1 < words.size();
      return all.ok ? words[++i] : std::string();
    };
    const std::string& word = words[i];
    if (word == "--cuda") {
      options().cuda = value();
    } else if (word == "--nccl") {
      options().nccl = value();
    } else if (word == "--only") {
      command.only.push_back(value());
    } else if (word == "--skip") {
      command.skip.push_back(value());
    } else if (word == "--expected") {
      command.expected = value();
    } else if (word == "--write") {
      command.write = value();
    } else if (word == "--log") {
      command.log = value();
    } else if (word == "--patience") {
      options().patience = std::max(1, std::atoi(value().c_str()));
    } else if (word == "--jobs") {
      command.jobs = std::max(1, std::atoi(value().c_str()));
    } else if (word == "--list") {
      all.list = true;
    } else if (word == "--read") {
      all.read = value();
      all.descriptor = std::atoi(value().c_str());
    } else {
      all.ok = false;
    }
  }
  return all;
}

int run(const std::vector<std::string>& words) {
  Arguments arguments = parse_arguments(words);
  Command& command = arguments.command;
  if (!arguments.ok) return usage();
  if (!arguments.read.empty()) return read_one(arguments.read, arguments.descriptor);
  if (arguments.list) {
    for (const Behaviour& behaviour : behaviours()) std::puts(behaviour.name);
    return 0;
  }
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 3;
  command.self = self;
  const Wanted wanted = wanted_by(command);
  if (wanted.empty()) return usage();
  if (!can_read(wanted)) return 2;
  const Outcomes outcomes = read_all(command, wanted);
  const Values values = values_of(outcomes);
  if (!command.write.empty()) write_values(command.write, values);
  return command.expected.empty() ? 0 : compare(command.expected, values, outcomes);
}

}}  // namespace same_as_real

int main(int argc, char** argv) { return same_as_real::run({argv + 1, argv + argc}); }
