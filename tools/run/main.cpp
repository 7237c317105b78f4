// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/env.h"
#include "c10d/error.h"
#include "c10d/launch.h"
#include "src/base/cpu_topology.h"
#include "src/base/host.h"
#include "src/base/members.h"
#include "src/launch/line_output.h"
#include "src/net/socket.h"
#include "src/net/token_file.h"
#include "tools/run/doctor.h"
#include "tools/run/options.h"
#include "tools/run/other_launchers.h"
#include "tools/run/output.h"
#include "tools/run/restart_backoff.h"
#include "tools/run/start_hosts.h"

namespace c10d { inline namespace v0 { namespace {

constexpr int kUsage = 2;
constexpr int kBroken = 1;
constexpr std::size_t kLastLineColumns = 78;

// Who speaks: "c10d-run", and which of several.
std::string& speaker() {
  static std::string name = "c10d-run";
  return name;
}

std::string how_it_ended(const RankResult& rank) {
  if (rank.signal != 0) {
    const char* abbreviation = sigabbrev_np(rank.signal);
    return fmt::format("{} (SIG{})", rank.exit_code, abbreviation ? abbreviation : "?");
  }
  return std::to_string(rank.exit_code);
}

std::string last_line(const RankResult& rank) {
  const std::size_t newline = rank.last_lines.rfind('\n');
  return visible(rank.last_lines.substr(newline == std::string::npos ? 0 : newline + 1));
}

// Ranks that ended alike, with the same last line: most often the same failure.
struct Ending {
  std::string how, last_line;
  std::vector<int> ranks;
};

std::vector<Ending> endings_of(const std::vector<RankResult>& ranks) {
  std::vector<Ending> endings;
  for (const RankResult& rank : ranks) {
    Ending mine{how_it_ended(rank), last_line(rank), {}};
    auto same = std::find_if(endings.begin(), endings.end(), [&](const Ending& other) {
      return other.how == mine.how && other.last_line == mine.last_line;
    });
    if (same == endings.end()) same = endings.insert(endings.end(), std::move(mine));
    same->ranks.push_back(rank.rank);
  }
  return endings;
}

// What every rank came to. The last line of the one that is told already is not told again.
std::string table_of(const LaunchResult& result, const std::string& told) {
  std::string text = fmt::format("{:>10}  {:<16}  {}\n", "ranks", "exit", "last line on stderr");
  for (const Ending& ending : endings_of(result.ranks)) {
    const bool again = !ending.last_line.empty() && ending.last_line == told;
    text += fmt::format("{:>10}  {:<16}  {}\n", ranges_of(ending.ranks), ending.how,
                        again ? "as above" : ending.last_line.substr(0, kLastLineColumns));
  }
  return text;
}

void report_timeout(const LaunchResult& result, std::chrono::nanoseconds timeout) {
  std::string text = fmt::format(
      "\n{}: the time limit of the job has passed (--timeout {:g}); exit code {} (timed out)\n",
      speaker(), std::chrono::duration<double>(timeout).count(), kTimedOutExitCode);
  if (!result.ranks.empty()) text += table_of(result, "");
  std::fputs(text.c_str(), stderr);
}

const RankResult& first_failed(const LaunchResult& result) {
  return result.ranks[static_cast<std::size_t>(result.first_failed - result.ranks.front().rank)];
}

// By the signal that was forwarded to it, or by SIGKILL after it: that is no failure of its own.
bool was_told_to_end(const LaunchResult& result) {
  if (result.forwarded_signal == 0 || result.first_failed < 0) return result.forwarded_signal != 0;
  const int signal = first_failed(result).signal;
  return signal == result.forwarded_signal || signal == SIGKILL;
}

void report_signal(const LaunchResult& result) {
  std::string text = fmt::format("{}: got signal {} ({})", speaker(), result.forwarded_signal,
                                 sigdescr_np(result.forwarded_signal));
  text += result.first_failed < 0 ? "\n" : " and forwarded it\n" + table_of(result, "");
  std::fputs(text.c_str(), stderr);
}

void report_failure(const LaunchResult& result) {
  const RankResult& first = first_failed(result);
  std::string text = "\n";
  if (result.forwarded_signal != 0)
    text += fmt::format("{}: got signal {} ({}) and forwarded it\n", speaker(),
                        result.forwarded_signal, sigdescr_np(result.forwarded_signal));
  text += fmt::format("{}: rank {} (pid {}) failed first: ", speaker(), first.rank, first.pid);
  text += first.signal != 0
              ? fmt::format("killed by signal {} ({})\n", first.signal, sigdescr_np(first.signal))
              : fmt::format("exit code {}\n", first.exit_code);
  if (first.signal == SIGKILL && result.forwarded_signal == 0)
    text += "somebody sent SIGKILL, or the kernel was out of memory: see dmesg\n";
  if (!first.last_lines.empty()) {
    text += "its last lines on stderr:\n";
    for (std::string_view rest = first.last_lines; !rest.empty();) {
      const std::size_t end = rest.find('\n');
      text += fmt::format("  | {}\n", visible(rest.substr(0, end)));
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    }
  }
  text += table_of(result, last_line(first));
  std::fputs(text.c_str(), stderr);
}

// And what of the environment comes with it.
std::string secret_of_hosts(const RunOptions& options,
                            std::map<std::string, std::string>& environment) {
  if (options.token_on_stdin) {
    FromStdin given = read_stdin(options.env_on_stdin);
    environment.merge(given.environment);
    return given.secret;
  }
  if (options.hosts.count == 1) return {};
  if (const auto path = env("C10D_TOKEN_FILE")) return read_token_file(*path);
  throw InvalidArgument(
      "several hosts need a common secret: make it once with (umask 077; head -c 32 /dev/urandom > "
      "~/.c10d-token), copy it to every host (scp -p), and set C10D_TOKEN_FILE=~/.c10d-token");
}

// Says so, then waits: the forwarded signal that came since, or 0.
int signal_before_restart(const std::vector<int>& signals, const std::string& which,
                          RestartBackoff::Time time) {
  const auto end = std::chrono::steady_clock::now() + time;
  sigset_t awaited, before;
  sigemptyset(&awaited);
  for (const int signal : signals) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&awaited, signal);
  }
  sigprocmask(SIG_BLOCK, &awaited, &before);
  fmt::print(stderr, "c10d-run: restart {} in {:.1f} s\n", which,
             std::chrono::duration<double>(time).count());
  int signal = -1;
  do {
    const auto left = std::max<std::chrono::nanoseconds>(end - std::chrono::steady_clock::now(),
                                                         std::chrono::nanoseconds(0));
    const timespec rest{.tv_sec = std::chrono::floor<std::chrono::seconds>(left).count(),
                        .tv_nsec = (left % std::chrono::seconds(1)).count()};
    signal = sigtimedwait(&awaited, nullptr, &rest);
  } while (signal < 0 && errno == EINTR);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return std::max(signal, 0);
}

void report(const LaunchResult& result, const RunOptions& options) {
  const bool is_led = options.env_on_stdin;
  if (!result.remote_failure.empty()) {
    if (is_led)
      tell_starter(result.remote_failure);
    else
      fmt::print(stderr, "c10d-run: {}\n", result.remote_failure);
  }
  if (result.timed_out) {
    report_timeout(result, options.timeout);
  } else if (was_told_to_end(result)) {
    if (!is_led) report_signal(result);  // else the end of stdin, by one that says why
  } else if (result.first_failed >= 0) {
    report_failure(result);
  }
  if (!result.rank_positions.empty())
    fmt::print(stderr, "{}: where the ranks were when they were stopped:\n{}", speaker(),
               result.rank_positions);
}

int run(const RunOptions& options) {
  RunOutput output(options);
  LaunchOptions launch_options{
      .ranks = options.ranks,
      .command = options.command,
      .environment = options.environment,
      .directory = options.directory,
      .virtual_local_rank = options.virtual_local_rank,
      .cpu_binding = options.cpu_binding,
      .overload_cpus = options.overload_cpus,
      .status_line = output.takes_status(),
      .signals = options.signals,
      .grace = options.grace,
      .max_failures = options.max_failures,
      .hosts = options.hosts,
      .on_line = [&](int rank, bool is_stderr,
                     std::string_view line) { output.line(rank, is_stderr, line); },
  };
  launch_options.hosts.token = secret_of_hosts(options, launch_options.environment);
  if (output.folder() != options.log_dir)
    fmt::print(stderr, "{}: output of the ranks is in {}\n", speaker(), output.folder());
  const bool is_limited = options.timeout.count() > 0;
  const auto end = std::chrono::steady_clock::now() + options.timeout;
  RestartBackoff backoff;
  for (int restart = 0;; ++restart) {
    const auto started = std::chrono::steady_clock::now();
    launch_options.environment["C10D_RESTART_COUNT"] = std::to_string(restart);
    launch_options.environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(restart);
    // There is time left, or the last run would have been the last.
    if (is_limited) launch_options.timeout = std::max<Duration>(end - started, Duration(1));
    output.begin(restart);
    const LaunchResult result = launch(launch_options);
    if (result.exit_code == 0 && result.first_failed < 0) return 0;
    report(result, options);
    if (result.exit_code == 0) {
      fmt::print(stderr, "c10d-run: the others went on without it, to a good end\n");
      return 0;
    }
    if (result.forwarded_signal != 0 || result.timed_out) return result.exit_code;
    if (restart == options.max_restarts) {
      if (restart > 0)
        fmt::print(stderr, "c10d-run: gave up after {} restart{}\n", restart,
                   restart == 1 ? "" : "s");
      return result.exit_code;
    }
    const auto pause = backoff.after(std::chrono::steady_clock::now() - started);
    const std::string which = fmt::format("{} of {}", restart + 1, options.max_restarts);
    if (is_limited && std::chrono::steady_clock::now() + pause >= end) {
      fmt::print(stderr, "c10d-run: --timeout leaves no time for restart {}\n", which);
      return result.exit_code;
    }
    if (const int signal = signal_before_restart(options.signals, which, pause)) {
      fmt::print(stderr, "c10d-run: got signal {}\n", signal);
      return 128 + signal;
    }
  }
}

// Of a c10d-run -H, which tells once what all hosts say.
int run_led(const RunOptions& options) try {
  return run(options);
} catch (const InvalidArgument& error) {
  tell_starter(error.what());
  return kUsage;
} catch (const std::exception& error) {
  tell_starter(error.what());
  return kBroken;
}

// What is opened later must not take the number of a stream that the caller closed: ranks' lines
// would go there.
void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (fcntl(fd, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDWR));
}

// On stdout, all of it or an error.
int say(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  fmt::print(stderr, "c10d-run: stdout: cannot be written: {}\n", error_text(errno));
  return kBroken;
}

void say_what_starts(const RunOptions& options) {
  fmt::print(stderr, "c10d-run: {} ranks on {}, {} CPUs: {}\n", options.ranks, host_name(),
             allowed_cpus(), fmt::join(options.command, " "));
  const auto cpus =
      bind_cpus(cpu_places(), options.cpu_binding, options.ranks, options.overload_cpus);
  for (std::size_t rank = 0; rank < cpus.size(); ++rank)
    fmt::print(stderr, "{}: local rank {} on CPUs {}\n", speaker(), rank, ranges_of(cpus[rank]));
}

int run_program(int argc, char** argv) {
  open_standard_streams();
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == kDoctorPeer) return run_doctor_peer();
  if (word == "doctor") return check_hosts(parse_doctor_options(argc - 1, argv + 1));
  const RunOptions options = parse_run_options(argc, argv);
  for (const std::string& warning : options.warnings)
    fmt::print(stderr, "c10d-run: warning: {}\n", warning);
  if (options.hosts.count > 1)
    speaker() += fmt::format(": host {} ({})", options.hosts.number, host_name());
  if (!options.host_commands.empty()) {
    return say(options.host_commands);
  }
  if (!options.print_for.empty()) {
    return say(equivalent_line(options) + '\n');
  }
  if (!options.host_lines.empty()) return start_hosts(options);
  if (options.verbose) say_what_starts(options);
  if (!options.via.empty()) become_mpirun(options);
  return options.env_on_stdin ? run_led(options) : run(options);
}

}}}  // namespace c10d::v0

int main(int argc, char** argv) try {
  return c10d::run_program(argc, argv);
} catch (const c10d::EarlyExit& end) {
  if (end.code == 0) return c10d::say(end.text);
  std::fputs(end.text.c_str(), stderr);
  return end.code;
} catch (const c10d::InvalidArgument& error) {
  fmt::print(stderr, "{}: {}\n", c10d::speaker(), error.what());
  return c10d::kUsage;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}: {}\n", c10d::speaker(), error.what());
  return c10d::kBroken;
}
