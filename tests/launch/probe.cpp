// SPDX-License-Identifier: BSD-3-Clause
// The rank of the launcher's tests: probe VERB [arguments].
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "c10d/env.h"
#include "c10d/error.h"
#include "c10d/init.h"
#include "c10d/launch.h"
#include "c10d/store.h"

namespace c10d { namespace {

using Arguments = std::vector<std::string>;

int my_rank() { return std::stoi(env("RANK").value_or("0")); }
int argument(const Arguments& arguments, std::size_t i) { return std::stoi(arguments.at(i)); }

// Says that it is up, then waits for the signal that ends it.
[[noreturn]] void stay() {
  std::printf("ready %d\n", getpid());
  std::fflush(stdout);
  for (;;) pause();
}

int print_arguments(const Arguments& arguments) {
  for (const std::string& text : arguments) std::printf("%s\n", text.c_str());
  return 0;
}

int print_variables(const Arguments& names) {
  for (const std::string& name : names) {
    const char* value = nullptr;
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (std::strncmp(*entry, (name + "=").c_str(), name.size() + 1) == 0)
        value = *entry + name.size() + 1;
    std::printf("%s=%s\n", name.c_str(), value != nullptr ? value : "(unset)");
  }
  return 0;
}

// Many lines, each in two writes.
int print_lines(const Arguments& arguments) {
  for (int i = 0; i < argument(arguments, 0); ++i) {
    const std::string start = "line " + std::to_string(i) + " of ";
    const std::string end = std::to_string(my_rank()) + std::string(50, 'x') + "\n";
    if (write(STDOUT_FILENO, start.data(), start.size()) < 0) return 1;
    if (write(STDOUT_FILENO, end.data(), end.size()) < 0) return 1;
  }
  return 0;
}

int print_text(const Arguments& arguments) {
  std::fputs(arguments.at(0).c_str(), stdout);
  std::fputs(arguments.at(1).c_str(), stderr);
  return 0;
}

// status STEPS: lines on both streams, and between them a status line where one is shown.
int show_status(const Arguments& arguments) {
  const auto columns = env_integer("C10D_TERMINAL_COLUMNS", 1, 65'535);
  std::printf("columns %d\n", static_cast<int>(columns.value_or(0)));
  for (int i = 0; i < argument(arguments, 0); ++i) {
    if (columns) std::fprintf(stderr, "step %d is done\r", i);
    std::fprintf(stderr, "word %d\n", i);
    std::printf("line %d\n", i);
    std::fflush(stdout);
  }
  if (columns) std::fprintf(stderr, "the end of %s\r", std::string(200, 'x').c_str());
  return 0;
}

// fail RANK exit|signal NUMBER: that rank ends so, the others stay.
int fail(const Arguments& arguments) {
  if (my_rank() != argument(arguments, 0)) stay();
  for (int i = 0; i < 30; ++i) std::fprintf(stderr, "complaint %d\n", i);
  if (arguments.at(1) == "exit") return argument(arguments, 2);
  raise(argument(arguments, 2));
  return 0;
}

// Rank 0 fails at the end of its input, the others will not end by themselves.
int ignore_term(const Arguments&) {
  signal(SIGTERM, SIG_IGN);
  if (my_rank() != 0) stay();
  char byte;
  return read(STDIN_FILENO, &byte, 1) == 0 ? 9 : 1;
}

// A child in the rank's process group and one in a session of its own.
int have_children(const Arguments& arguments) {
  if (fork() == 0) stay();
  if (fork() == 0) {
    setsid();
    stay();
  }
  if (arguments.at(0) == "stay") stay();
  return 0;
}

void say_signal(int signal) {
  const std::string text = "got " + std::to_string(signal) + "\n";
  _exit(write(STDOUT_FILENO, text.data(), text.size()) > 0 ? 3 : 4);
}

int catch_signals(const Arguments&) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) signal(number, say_signal);
  }
  stay();
}

std::string read_token() {
  const int fd = static_cast<int>(env_integer("C10D_TOKEN_FD", 0, 1 << 20).value());
  std::string token(32, '\0');
  return pread(fd, token.data(), token.size(), 0) == 32 ? token : "";
}

// Whether the token stands in a file of this process or of its parent, as bytes or as hex digits.
int hide_token(const Arguments&) {
  const std::string token = read_token();
  std::string hex;
  for (const char c : token) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    hex += digits;
  }
  bool found = false;
  const std::vector<std::string> processes = {"self", std::to_string(getppid())};
  for (const std::string& pid : processes) {
    for (const char* name : {"environ", "cmdline"}) {
      std::ifstream file("/proc/" + pid + "/" + name);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      found = found || text.find(token) != std::string::npos || text.find(hex) != std::string::npos;
    }
  }
  const int fd = static_cast<int>(env_integer("C10D_TOKEN_FD", 0, 1 << 20).value());
  const bool sealed = pwrite(fd, "x", 1, 0) < 0 && ftruncate(fd, 1) < 0;
  std::printf("%s %s %s\n", hex.c_str(), found ? "visible" : "hidden", sealed ? "sealed" : "open");
  return 0;
}

TcpStoreOptions store_of_launcher() {
  const std::string place = env("C10D_STORE").value();
  TcpStoreOptions options;
  options.port = static_cast<std::uint16_t>(std::stoi(place.substr(place.rfind(':') + 1)));
  options.job = env("C10D_JOB_ID").value();
  options.token = read_token();
  return options;
}

// All ranks meet in the launcher's store; then a stranger without the token is refused.
int use_store(const Arguments&) {
  TcpStoreOptions options = store_of_launcher();
  options.timeout = std::chrono::seconds(10);
  const auto store = make_tcp_store(options);
  store->barrier("met", static_cast<int>(env_integer("WORLD_SIZE", 1, 99).value()));
  options.token = std::string(32, 'x');
  try {
    make_tcp_store(options)->num_keys();
  } catch (const DistNetworkError& error) {
    std::printf("%s\n", std::string(to_string(error.code())).c_str());
  }
  return 0;
}

// What a framework's own store does on rank 0.
int serve_master_port(const Arguments&) {
  const int fd = socket(AF_INET6, SOCK_STREAM, 0);
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port =
      htons(static_cast<std::uint16_t>(env_integer("MASTER_PORT", 1, 65535).value()));
  const bool works =
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(fd, 1) == 0;
  std::printf("%s\n", works ? "served" : std::strerror(errno));
  return works ? 0 : 1;
}

// throw RANK: that rank does, and catches nothing; the others wait for minutes.
int throw_something(const Arguments& arguments) {
  const auto store = make_tcp_store(store_of_launcher());
  store->barrier("all", static_cast<int>(env_integer("WORLD_SIZE", 1, 99).value()));
  if (my_rank() == argument(arguments, 0)) throw std::range_error("digit 7 is missing");
  store->get("what nobody sets", std::chrono::minutes(5));
  return 0;
}

int print_input(const Arguments&) {
  char text[100] = {};
  const ssize_t n = read(STDIN_FILENO, text, sizeof text - 1);
  std::printf("input %zd %s\n", n, text);
  return 0;
}

int print_descriptors(const Arguments&) {
  std::vector<int> open;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.') open.push_back(std::stoi(entry->d_name));
  std::sort(open.begin(), open.end());
  std::string text;
  const int token = static_cast<int>(env_integer("C10D_TOKEN_FD", 0, 1 << 20).value());
  for (const int fd : open)
    if (fd != dirfd(folder)) text += (fd == token ? "token" : std::to_string(fd)) + " ";
  closedir(folder);
  std::printf("%s\n", text.c_str());
  return 0;
}

int fail_until(const Arguments& arguments) {
  const int count = static_cast<int>(env_integer("C10D_RESTART_COUNT", 0, 99).value());
  std::printf("start %d\n", count);
  std::fflush(stdout);
  return count < argument(arguments, 0) ? 4 : 0;
}

// Rank 0 enters a barrier that the others never enter.
int hang(const Arguments&) {
  ProcessGroup group = init_process_group({.backend = "native"});
  if (group.rank() == 0) group.barrier();
  stay();
}

// Ranks that call with different counts.
int disagree(const Arguments&) try {
  ProcessGroup group = init_process_group({.backend = "native"});
  std::vector<float> data(static_cast<std::size_t>(group.rank() + 1));
  group.all_reduce(data);
  return 0;
} catch (const DistError&) {
  return 5;
}

int make_groups(const Arguments&) try {
  for (int i = 0; i < 2; ++i) init_process_group().barrier();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

// launch_for SECONDS PROGRAM ...
int launch_for(const Arguments& arguments) {
  const std::vector<std::string> command(arguments.begin() + 1, arguments.end());
  return launch({.ranks = 1,
                 .command = command,
                 .timeout = std::chrono::seconds(argument(arguments, 0))})
      .exit_code;
}

}}  // namespace c10d

int main(int argc, char** argv) {
  using namespace c10d;
  const std::map<std::string, int (*)(const Arguments&)> verbs = {
      {"arguments", print_arguments},
      {"variables", print_variables},
      {"lines", print_lines},
      {"text", print_text},
      {"status", show_status},
      {"fail", fail},
      {"throw", throw_something},
      {"ignore_term", ignore_term},
      {"children", have_children},
      {"signals", catch_signals},
      {"token", hide_token},
      {"store", use_store},
      {"master_port", serve_master_port},
      {"input", print_input},
      {"descriptors", print_descriptors},
      {"fail_until", fail_until},
      {"hang", hang},
      {"disagree", disagree},
      {"groups", make_groups},
      {"launch_for", launch_for},
  };
  return verbs.at(argv[1])(Arguments(argv + 2, argv + argc));
}
