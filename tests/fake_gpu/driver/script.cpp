// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/driver/script.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "src/backends/nccl/nccl.h"
#include "src/device/driver.h"

namespace fake_gpu {
namespace {

bool is_function(std::string_view name) {
#define C10D_OF_THE_DRIVER(member, symbol, ...) \
  if (name == #symbol) return true;
#define C10D_OF_NCCL(since, member, symbol, ...) C10D_OF_THE_DRIVER(member, symbol)
  C10D_DRIVER_FUNCTIONS(C10D_OF_THE_DRIVER)
  C10D_NCCL_FUNCTIONS(C10D_OF_NCCL)
#undef C10D_OF_NCCL
#undef C10D_OF_THE_DRIVER
  return false;
}

class Reader {
 public:
  explicit Reader(std::string_view line) : line_(line) {}

  ReadScript read() {
    while (read_.mistake.empty()) {
      skip_space();
      while (take(';')) skip_space();
      if (at_ == line_.size()) break;
      clause();
      skip_space();
      if (read_.mistake.empty() && at_ < line_.size() && line_[at_] != ';') {
        wrong("expected ; or the end");
      }
    }
    return read_;
  }

 private:
  void wrong(std::string what) {
    if (!read_.mistake.empty()) return;
    read_.mistake = std::move(what);
    read_.at = at_;
  }
  void skip_space() {
    while (at_ < line_.size() && std::isspace(static_cast<unsigned char>(line_[at_]))) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ == line_.size() || line_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string_view word() {
    skip_space();
    const std::size_t from = at_;
    const auto belongs = [&](char c) {
      return c == '_' || c == '-' || std::isalpha(static_cast<unsigned char>(c)) ||
             (at_ > from && std::isdigit(static_cast<unsigned char>(c)));
    };
    while (at_ < line_.size() && belongs(line_[at_])) ++at_;
    return line_.substr(from, at_ - from);
  }
  // Looks at the next word without taking it.
  std::string_view next() {
    const std::size_t from = at_;
    const std::string_view found = word();
    at_ = from;
    return found;
  }
  std::uint64_t number(const char* of_what) {
    skip_space();
    std::uint64_t value = 0;
    const std::size_t from = at_;
    for (; at_ < line_.size() && std::isdigit(static_cast<unsigned char>(line_[at_])); ++at_) {
      const auto digit = static_cast<std::uint64_t>(line_[at_] - '0');
      if (value > (~std::uint64_t{0} - digit) / 10) {
        wrong(std::string(of_what) + " is too large");
        return 0;
      }
      value = value * 10 + digit;
    }
    if (at_ == from) wrong(std::string("expected ") + of_what);
    return value;
  }

  void clause() {
    while (next() == "rank" || next() == "all") {
      if (word() == "rank") {
        const std::uint64_t rank = number("the number of a rank");
        if (rank > 1'000'000) return wrong("the rank is too large");
        rank_ = static_cast<int>(rank);
      } else {
        rank_ = -1;
      }
      if (!take(':')) return wrong("expected : behind whom the clauses are for");
    }
    const std::size_t from = at_;
    const std::string_view name = word();
    if (name.empty()) return wrong("expected a setting, a function, op or kill");
    for (const char* known : {"devices", "memory", "seed", "watcher", "places"})
      if (name == known) return setting(name);
    Clause made;
    made.rank = rank_;
    if (name == "kill") {
      kill(made);
    } else if (target(made, name, from)) {
      action(made);
    }
    if (read_.mistake.empty()) read_.script.clauses.push_back(std::move(made));
  }

  void setting(std::string_view name) {
    if (!take('=')) return wrong("expected =");
    if (name == "watcher") {
      read_.script.watcher = word();
      if (read_.script.watcher.empty()) wrong("expected the name of a thread");
      return;
    }
    skip_space();
    const std::size_t from = at_;
    const std::uint64_t value = number("a number");
    if (name == "seed") {
      read_.script.seed = value;
    } else if (name == "places") {
      if (value > 8) {
        at_ = from;
        return wrong("at most 8 callers");
      }
      read_.script.places = static_cast<int>(value);
    } else if (name == "devices") {
      if (value > 64) {
        at_ = from;
        return wrong("at most 64 devices");
      }
      read_.script.devices = static_cast<int>(value);
    } else {
      memory(value, from);
    }
  }
  void memory(std::uint64_t value, std::size_t from) {
    const std::string_view unit = word();
    const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
    if (shift < 0) return wrong("expected K, M or G");
    if (value == 0 || value > (std::uint64_t{1} << 40 >> shift)) {
      at_ = from;
      return wrong("from 1K to 1024G");
    }
    read_.script.memory = value << shift;
  }

  // NAME | op [NAME], then [#N[+] | #N-M]
  bool target(Clause& made, std::string_view name, std::size_t from) {
    if (name == "op") {
      made.is_op = true;
      const std::string_view of = next();
      if (of.substr(0, 2) == "cu" || of.substr(0, 4) == "nccl") {
        from = at_;
        name = word();
      } else {
        name = {};
      }
    }
    if (!name.empty() && !is_function(name)) {
      at_ = from;
      skip_space();
      wrong("no function of the driver or of NCCL is called " + std::string(name));
      return false;
    }
    made.function = name;
    if (!take('#')) return true;
    made.first = made.last = number("the number of a call");
    if (made.first == 0) wrong("calls are counted from 1");
    if (take('+')) made.last = ~std::uint64_t{0};
    if (take('-')) made.last = number("the number of a call");
    if (made.last < made.first) wrong("the last is before the first");
    return read_.mistake.empty();
  }

  void action(Clause& made) {
    if (take('=')) {
      const std::uint64_t code = number("a result code");
      if (code > 99'999) return wrong("the result code is too large");
      made.result = static_cast<int>(code);
      return;
    }
    if (next() == "hang") {
      word();
      made.action = Clause::Action::hang;
      if (next() != "for") return;
      word();
      if (word() != "ever") return wrong("expected ever");
      made.action = Clause::Action::hang_for_ever;
      return;
    }
    skip_space();
    if (at_ == line_.size() || !std::isdigit(static_cast<unsigned char>(line_[at_]))) {
      return wrong("expected = and a code, a time such as 20ms, or hang");
    }
    const std::uint64_t value = number("a time");
    const std::string_view unit = word();
    const std::uint64_t us = unit == "us" ? 1 : unit == "ms" ? 1'000 : unit == "s" ? 1'000'000 : 0;
    if (us == 0) return wrong("expected us, ms or s");
    if (value > 3'600'000'000 / us) return wrong("at most an hour");
    made.action = Clause::Action::delay;
    made.delay = std::chrono::microseconds(value * us);
  }

  void kill(Clause& made) {
    const std::size_t from = at_;
    const std::string_view when = word();
    if (when != "at" && when != "after") {
      at_ = from;
      skip_space();
      return wrong("expected at or after");
    }
    made.action = when == "at" ? Clause::Action::kill : Clause::Action::kill_after;
    skip_space();
    const std::size_t name_at = at_;
    const std::string_view name = word();
    if (name.empty()) return wrong("expected op or a function");
    if (when == "after" && name != "op") {
      at_ = name_at;
      return wrong("only an op has an after: kill at a function, or after op");
    }
    target(made, name, name_at);
  }

  std::string_view line_;
  std::size_t at_ = 0;
  int rank_ = -1;
  ReadScript read_;
};

Script of_environment() {
  const char* line = std::getenv("FAKE_GPU");
  if (!line) return {};
  ReadScript read = read_script(line);
  if (read.mistake.empty()) return std::move(read.script);
  std::fprintf(stderr, "FAKE_GPU: at byte %zu: %s\n  %s\n  %*s^\n", read.at, read.mistake.c_str(),
               line, static_cast<int>(read.at), "");
  std::fflush(stderr);
  syscall(SYS_exit_group, 2);  // the loader is at work: no sanitizer takes an exit here
  std::abort();
}

}  // namespace

ReadScript read_script(std::string_view line) { return Reader(line).read(); }

const Script& script() {
  static const Script& of_process = *new Script(of_environment());
  return of_process;
}

}  // namespace fake_gpu
