// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/driver/judge.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/fake_gpu/driver/faults.h"

namespace fake_gpu {
namespace {

constexpr std::size_t kMostViolations = 100;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return out + '"';
}

struct Judge {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, int> violations;
  std::map<std::string, int> held;
  std::vector<Leftovers> leftovers;
  std::string file;
  pid_t process = 0;
};
// Never destroyed: the threads of streams outlive the statics.
Judge& judge() {
  static Judge& only = *new Judge;
  return only;
}

std::string text_of_calls() {
  std::string text = ",\"calls\":[";
  const char* comma = "";
  const auto row = [&](const std::string& function, std::uint64_t number, const std::string& from) {
    text += comma;
    text += "[" + quoted(function) + "," + std::to_string(number) + "," + quoted(from) + "]";
    comma = ",";
  };
  for (const auto& [function, known] : calls()) {
    row(function, known.count, "all");
    for (const auto& [place, number] : known.first) row(function, number, place);
  }
  return text + "]";
}

// Locked by the caller. A fork that has no report of its own leaves that of its parent alone.
void write_report(Judge& all, const char* end, const std::map<std::string, int>& left,
                  const std::string& more = {}) {
  if (all.file.empty() || all.process != getpid()) return;
  std::string text = "{\"pid\":" + std::to_string(all.process) + ",\"end\":" + quoted(end);
  text += ",\"violations\":[";
  const char* comma = "";
  for (const auto& [what, count] : all.violations) {
    text += comma;
    text += "{\"kind\":" + quoted(what.first) + ",\"detail\":" + quoted(what.second) +
            ",\"count\":" + std::to_string(count) + "}";
    comma = ",";
  }
  text += "],\"left\":{";
  comma = "";
  for (const auto& [what, count] : left) {
    if (count == 0) continue;
    text += comma + quoted(what) + ":" + std::to_string(count);
    comma = ",";
  }
  text += "}" + more + "}\n";
  // A reader sees the old report or the new one, even if this process is killed meanwhile.
  const std::string made = all.file + ".new";
  const int descriptor = open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    std::perror(("fake_gpu: " + made).c_str());
    return;
  }
  const bool whole = write(descriptor, text.data(), text.size()) == ssize_t(text.size());
  close(descriptor);
  if (whole) std::rename(made.c_str(), all.file.c_str());
}

void end_report() {
  Judge& all = judge();
  std::unique_lock lock(all.mutex);
  if (all.process != getpid()) return;  // a fork that never called cuInit
  std::map<std::string, int> left = all.held;
  const std::vector<Leftovers> leftovers = all.leftovers;
  lock.unlock();
  for (const Leftovers& ask : leftovers) {
    ask([&](const char* what, int count) { left[what] += count; });
  }
  const std::string calls = text_of_calls();
  lock.lock();
  write_report(all, "exit", left, calls);
}

}  // namespace

void begin_report() {
  Judge& all = judge();
  const std::lock_guard lock(all.mutex);
  if (all.process == getpid()) return;
  if (all.process != 0) all.violations.clear();  // those of the parent are in its own report
  const bool first = all.process == 0;
  all.process = getpid();
  if (const char* folder = std::getenv("FAKE_GPU_REPORTS")) {
    all.file = std::string(folder) + "/" + std::to_string(all.process) + ".json";
    write_report(all, "running", all.held);
  }
  if (first) std::atexit(end_report);
}

void holds(const char* what, int change) {
  Judge& all = judge();
  const std::lock_guard lock(all.mutex);
  all.held[what] += change;
  write_report(all, "running", all.held);
}

void violation(const char* kind, const std::string& detail) {
  Judge& all = judge();
  const std::lock_guard lock(all.mutex);
  const auto key = std::make_pair(std::string(kind), detail);
  if (all.violations.size() >= kMostViolations && all.violations.count(key) == 0) return;
  ++all.violations[key];
  write_report(all, "running", all.held);
}

void crash(const std::string& why) {
  std::fprintf(stderr, "fake_gpu: %s: the driver crashes here\n", why.c_str());
  std::fflush(stderr);
  std::raise(SIGSEGV);
  std::abort();
}

void at_exit(Leftovers leftovers) {
  Judge& all = judge();
  const std::lock_guard lock(all.mutex);
  all.leftovers.push_back(std::move(leftovers));
}

}  // namespace fake_gpu
