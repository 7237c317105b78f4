// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/start_hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <list>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "c10d/error.h"
#include "src/launch/descriptor_limit.h"
#include "src/launch/line_output.h"
#include "src/launch/orphans.h"
#include "src/launch/signals.h"
#include "src/launch/spawn.h"
#include "src/net/socket.h"
#include "src/net/token.h"
#include "src/sync/thread.h"
#include "tools/run/agent.h"
#include "tools/run/args.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

// What a host says on stderr when it has its secret: its agent has worked.
constexpr std::string_view kUp = "\1c10d-run is up";
// And before a failure that other hosts may say too.
constexpr std::string_view kKnows = "\1c10d-run knows: ";
constexpr std::string_view kOwnLine = "c10d-run: ";
// Of hosts that are not up, to say so.
constexpr std::chrono::seconds kToSayWho{10};
constexpr int kNotUpExitCode = 1;
// As soon after a signal it may be the same: timeout(1) sends it to the group too.
constexpr std::chrono::seconds kAgain{1};
// After a first failure: hosts that have met tell each other, and end by themselves.
constexpr std::chrono::seconds kToTellEachOther{2};
// From the end of its input to that of a host, besides the grace of its ranks.
constexpr std::chrono::seconds kToEnd{10};
constexpr std::chrono::seconds kToDrain{2};
constexpr std::chrono::seconds kTokenTimeout{60};
// Of the secret and the variables, in hexadecimal digits: what a pipe takes at once.
constexpr std::size_t kMostInput = std::size_t{64} << 10;

class HostsJob {
 public:
  explicit HostsJob(const RunOptions& options)
      : options_(options),
        signals_(options.signals),
        marker_("C10D_HOSTS_ID=" + to_hex(random_bytes(8))),
        guardian_(marker_) {}
  ~HostsJob() {
    kill_all();
    const Deadline give_up = steady_clock::now() + kToEnd;  // of one that hangs in the kernel
    for (const Host& host : hosts_) {
      wait_for(host.child.pidfd.get(), POLLIN, give_up);
      waitpid(host.child.pid, nullptr, WNOHANG);
    }
  }
  HostsJob(const HostsJob&) = delete;
  HostsJob& operator=(const HostsJob&) = delete;

  int run() {
    enter(Phase::starting, std::min<Duration>(kToSayWho, options_.hosts.timeout / 2));
    start_all();
    while (phase_ != Phase::done) {
      poll_once();
      take_signals();
      advance();
    }
    say_what_hosts_know();
    return exit_code_;
  }

 private:
  // `late`: not all are up, and the user knows. `failing`: one has failed, the others may know.
  // `ending`: their input was closed.
  enum class Phase { starting, late, running, failing, ending, killed, draining, done };
  struct Host {
    std::string name, agent;
    bool is_up = false, has_said_why = false;
    Child child;
    Fd input;
    LineStream out, err;
    bool ended = false;
  };

  void start_all();
  void start(const HostLine& line, std::vector<std::string> command, const std::string& text);
  void poll_once();
  void read_stream(Host& host, bool is_stderr);
  void take_line(Host& host, std::string_view line);
  void note_ended(Host& host);
  void find_agents_that_did_nothing();
  void say_what_hosts_know();
  void say_who_is_late() const;
  void give_up();
  void take_signals();
  void advance();
  void enter(Phase phase, Duration timeout);
  void end_all();
  void kill_all();

  const RunOptions& options_;
  SignalRelay signals_;
  const std::string marker_;  // of all processes here
  DescriptorLimit descriptors_;
  Guardian guardian_;
  std::list<Host> hosts_;
  Phase phase_ = Phase::starting;
  // By length: a failure of which one host tells another holds what that one says.
  struct ByLength {
    bool operator()(const std::string& a, const std::string& b) const {
      return std::pair(a.size(), a) < std::pair(b.size(), b);
    }
  };
  std::map<std::string, std::vector<std::string>, ByLength> known_;  // failures, by which hosts
  std::vector<std::string> said_;  // by launchers, without "c10d-run: "
  bool is_told_ = false;           // why the job ends, by this one
  const Deadline started_ = steady_clock::now();
  Deadline next_signal_{};
  std::optional<Deadline> deadline_;
  int exit_code_ = 0;
};

void HostsJob::start_all() {
  descriptors_.make_room(options_.host_lines.size(), 0);
  std::string input = to_hex(random_bytes(32)) + '\n';
  for (const auto& [name, value] : options_.environment) input += to_hex(name + '=' + value) + '\n';
  input += '\n';
  if (input.size() > kMostInput)
    throw InvalidArgument(
        fmt::format("-x: variables of {} bytes are more than the {} that go over "
                    "the input of an agent; hand them over in a file",
                    input.size() / 2, kMostInput / 2));
  for (const HostLine& line : options_.host_lines)
    start(line, command_on(line.host, line.words, options_.agent), input);
}

void HostsJob::start(const HostLine& line, std::vector<std::string> command,
                     const std::string& text) {
  auto [input, input_writer] = make_pipe();
  auto [out, out_writer] = make_pipe();
  auto [err, err_writer] = make_pipe();
  for (const Fd* fd : {&out, &err}) fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  // It fits into the pipe, whether or not anybody reads.
  if (write(input_writer.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format("a pipe to the agent: {}", error_text(errno))});
  std::string shown = fmt::format("{}", fmt::join(command, " "));
  if (options_.verbose) fmt::print(stderr, "c10d-run: on {}: {}\n", line.host, shown);
  hosts_.push_back({.name = line.host,
                    .agent = std::move(shown),
                    .child = start_agent({.command = std::move(command),
                                          .environment = {marker_},
                                          .stdin_fd = input.get(),
                                          .stdout_fd = out_writer.get(),
                                          .stderr_fd = err_writer.get(),
                                          .registration_fd = guardian_.registration_fd(),
                                          .descriptors = descriptors_.callers()}),
                    .input = std::move(input_writer),
                    .out = {std::move(out), {}},
                    .err = {std::move(err), {}}});
}

void HostsJob::poll_once() {
  std::vector<pollfd> entries{{signals_.fd(), POLLIN, 0}};
  const auto add = [&](int fd) { entries.push_back({fd, POLLIN, 0}); };  // -1 is passed over
  for (const Host& host : hosts_) {
    add(host.out.fd.get());
    add(host.err.fd.get());
    add(host.ended ? -1 : host.child.pidfd.get());
  }
  if (::poll(entries.data(), entries.size(), deadline_ ? poll_timeout(*deadline_) : -1) <= 0)
    return;
  std::size_t at = 1;
  for (Host& host : hosts_) {
    if (entries[at++].revents != 0) read_stream(host, false);
    if (entries[at++].revents != 0) read_stream(host, true);
    if (entries[at++].revents != 0) note_ended(host);
  }
}

void HostsJob::read_stream(Host& host, bool is_stderr) {
  const OutputBatch batch;  // of what one read brings
  (is_stderr ? host.err : host.out).read([&](std::string_view line) {
    if (is_stderr)
      take_line(host, line);
    else
      print_rank_line(0, false, line, false);
  });
}

void HostsJob::take_line(Host& host, std::string_view line) {
  // An agent may say something on the way, and leave its line open.
  if (!host.is_up && line.ends_with(kUp)) {
    host.is_up = true;
    line.remove_suffix(kUp.size());
    if (line.empty()) return;
  }
  host.has_said_why = true;
  const bool is_own = line.starts_with(kOwnLine);
  if (line.starts_with(kKnows) || (is_own && !host.is_up)) {  // a launcher that reads its options
    line.remove_prefix(is_own ? kOwnLine.size() : kKnows.size());
    known_[std::string(line)].push_back(host.name);
    return;
  }
  if (is_own) said_.emplace_back(line.substr(kOwnLine.size()));
  print_rank_line(0, true, line, false);
}

// The host that failed first has said so itself, unless it cannot.
void HostsJob::say_what_hosts_know() {
  for (const auto& [text, names] : std::exchange(known_, {})) {
    const std::size_t who = text.starts_with("host ") ? text.find("): ") : text.npos;
    const auto is_same = [&, &text = text](const std::string& said) {
      return text.find(said) != text.npos || said.find(text) != said.npos ||
             (who != text.npos && said.starts_with(text.substr(0, who + 3)));
    };
    if (is_told_ || std::any_of(said_.begin(), said_.end(), is_same)) continue;
    fmt::print(stderr, "c10d-run: host{} {}: {}\n", names.size() == 1 ? "" : "s",
               fmt::join(names, ", "), text);
    said_.push_back(text);
  }
}

void HostsJob::note_ended(Host& host) {
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(host.child.pid), &info, WEXITED | WNOWAIT);
  host.ended = true;
  host.input.reset();
  const int code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  if (code == 0 || exit_code_ != 0) return;
  exit_code_ = code;
  // A launcher has told its reason; a shell and ssh have codes of their own.
  const bool is_of_agent = info.si_code != CLD_EXITED || code == 126 || code == 127 || code == 255;
  if (!host.has_said_why || is_of_agent)
    fmt::print(stderr, "c10d-run: host {}: {} {} of: {}\n", host.name,
               info.si_code == CLD_EXITED ? "exit code" : "signal", info.si_status, host.agent);
  if (phase_ <= Phase::running) enter(Phase::failing, kToTellEachOther);
}

// Its output has been read to the end, and nothing in it says that a c10d-run was up.
void HostsJob::find_agents_that_did_nothing() {
  for (const Host& host : hosts_) {
    if (!host.ended || host.is_up || host.out.fd || host.err.fd || exit_code_ != 0) continue;
    fmt::print(stderr,
               "c10d-run: host {}: its agent ended well, and started no c10d-run there: {}\n",
               host.name, host.agent);
    exit_code_ = kNotUpExitCode;
    if (phase_ <= Phase::running) enter(Phase::failing, kToTellEachOther);
  }
}

void HostsJob::say_who_is_late() const {
  std::vector<std::string> names;
  for (const Host& host : hosts_)
    if (!host.is_up) names.push_back(host.name);
  fmt::print(stderr, "c10d-run: still waiting for {}: no c10d-run is up there yet\n",
             fmt::join(names, ", "));
}

void HostsJob::give_up() {
  for (const Host& host : hosts_) {
    if (host.is_up || host.ended) continue;
    std::string attempt;
    for (const std::string& word : command_on(host.name, {"--version"}, options_.agent))
      attempt += (attempt.empty() ? "" : " ") + quoted(word);
    fmt::print(
        stderr,
        "c10d-run: host {}: no c10d-run was up there after {:g} s, and its agent still runs: "
        "{}. Run this by hand, which must print a version at once: {}. An ssh of yours may "
        "need -o BatchMode=yes -o ConnectTimeout=10; --rdzv-conf join_timeout=S waits for "
        "longer\n",
        host.name, std::chrono::duration<double>(options_.hosts.timeout).count(), host.agent,
        attempt);
  }
  is_told_ = true;
  exit_code_ = kNotUpExitCode;
  end_all();
}

// A second one, later, ends all at once.
void HostsJob::take_signals() {
  while (const std::optional<int> signal = signals_.take()) {
    if (exit_code_ == 0) exit_code_ = 128 + *signal;
    if (phase_ < Phase::ending) {
      fmt::print(stderr, "c10d-run: got signal {}: the hosts end their ranks\n", *signal);
      is_told_ = true;
      end_all();
      next_signal_ = steady_clock::now() + kAgain;
    } else if (phase_ == Phase::ending && steady_clock::now() >= next_signal_) {
      fmt::print(stderr, "c10d-run: got signal {} again: all is killed\n", *signal);
      kill_all();
      enter(Phase::killed, kToEnd);
    }
  }
}

// No rank runs on a host that is not up, and its agent may hang.
void HostsJob::end_all() {
  for (Host& host : hosts_) {
    host.input.reset();
    if (!host.is_up) kill(-host.child.pid, SIGKILL);
  }
  enter(Phase::ending, Duration(options_.grace) + kToEnd);
}

void HostsJob::enter(Phase phase, Duration timeout) {
  phase_ = phase;
  deadline_ = steady_clock::now() + timeout;
}

void HostsJob::kill_all() {
  for (const Host& host : hosts_) kill(-host.child.pid, SIGKILL);
  kill_marked_processes(marker_.c_str());
}

void HostsJob::advance() {
  find_agents_that_did_nothing();
  const bool late = deadline_ && steady_clock::now() >= *deadline_;
  const bool all_ended =
      std::all_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.ended; });
  const bool any_open = std::any_of(hosts_.begin(), hosts_.end(),
                                    [](const Host& host) { return host.out.fd || host.err.fd; });
  const bool all_up = std::all_of(hosts_.begin(), hosts_.end(),
                                  [](const Host& host) { return host.is_up || host.ended; });
  if (phase_ < Phase::draining && all_ended) {
    enter(Phase::draining, kToDrain);
  } else if (phase_ < Phase::running && all_up) {
    say_what_hosts_know();
    phase_ = Phase::running;
    deadline_.reset();
  } else if (phase_ == Phase::starting && late) {
    say_who_is_late();
    enter(Phase::late, options_.hosts.timeout - (steady_clock::now() - started_));
  } else if (phase_ == Phase::late && late) {
    give_up();
  } else if (phase_ == Phase::failing && late) {
    say_what_hosts_know();
    end_all();
  } else if (phase_ == Phase::ending && late) {
    for (const Host& host : hosts_)
      if (!host.ended)
        fmt::print(stderr, "c10d-run: host {} does not end: its agent is killed\n", host.name);
    kill_all();
    enter(Phase::killed, kToEnd);
  } else if (phase_ == Phase::killed && late) {
    phase_ = Phase::done;
  }
  if (phase_ == Phase::draining && (!any_open || steady_clock::now() >= *deadline_))
    phase_ = Phase::done;
}

}  // namespace

int start_hosts(const RunOptions& options) { return HostsJob(options).run(); }

namespace {

// Without its end. Byte by byte: what stands behind it stays there.
std::string read_line(int fd, std::size_t most, Deadline end, const std::string& what) {
  std::string line;
  for (char byte = 0; line.size() <= most; line += byte) {
    const bool is_there = wait_for(fd, POLLIN, end);
    const ssize_t n = is_there ? read(fd, &byte, 1) : -1;
    if (n < 0 && is_there && (errno == EINTR || errno == EAGAIN)) continue;
    if (n != 1)
      throw InvalidArgument(fmt::format("{}: stdin {} before a line", what,
                                        is_there ? "ended" : "brought nothing for 60 s"));
    if (byte == '\n') break;
  }
  return line;
}

// As to_hex() wrote it.
std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
    int byte = 0;
    const char* end = text.data() + at + 2;
    if (std::from_chars(text.data() + at, end, byte, 16).ptr != end) break;
    bytes += static_cast<char>(byte);
  }
  return bytes.size() * 2 == text.size() ? bytes : "";
}

}  // namespace

void tell_starter(const std::string& failure) { fmt::print(stderr, "{}{}\n", kKnows, failure); }

FromStdin read_stdin(bool with_environment) {
  // Nobody else here hears of the end of stdin.
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGTERM, &by_default, nullptr);
  // Rank 0 shall not read what comes behind.
  Fd input = Fd(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input || dup2(nothing.get(), STDIN_FILENO) < 0)
    throw InvalidArgument(fmt::format("--token-on-stdin: stdin: {}", error_text(errno)));
  const Deadline end = steady_clock::now() + kTokenTimeout;
  FromStdin result{.secret = read_line(input.get(), kMostTokenBytes, end, "--token-on-stdin")};
  if (result.secret.size() < kLeastTokenBytes || result.secret.size() > kMostTokenBytes)
    throw InvalidArgument(fmt::format("--token-on-stdin: the first line must have {} to {} bytes",
                                      kLeastTokenBytes, kMostTokenBytes));
  while (with_environment) {
    const std::string line = read_line(input.get(), kMostInput, end, "--env-on-stdin");
    if (line.empty()) break;
    const std::string entry = from_hex(line);
    const std::size_t equals = entry.find('=');
    if (equals == entry.npos)
      throw InvalidArgument("--env-on-stdin: a line is no variable; the c10d-run of -H writes it");
    result.environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  if (with_environment) fmt::print(stderr, "{}\n", kUp);
  start_thread([input = std::move(input)] {
    char byte = 0;
    ssize_t n = 0;
    do {
      pollfd entry{input.get(), POLLIN, 0};
      ::poll(&entry, 1, -1);
      n = read(input.get(), &byte, 1);
    } while (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)));
    kill(getpid(), SIGTERM);
  }).detach();
  return result;
}

}}  // namespace c10d::v0
