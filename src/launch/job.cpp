// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <tuple>
#include <utility>

#include "c10d/error.h"
#include "src/base/log.h"
#include "src/base/timeouts.h"
#include "src/launch/orphans.h"
#include "src/launch/reserve_port.h"
#include "src/net/address.h"
#include "src/net/token.h"
#include "src/recorder/format.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

// SIGKILL works at once, except on a process that hangs in the kernel.
constexpr Duration kKillTimeout = std::chrono::seconds(5);
constexpr int kTimedOutCode = 124;  // as timeout(1) says it
constexpr int kBrokenCode = 1;      // of a launcher that cannot go on
// What killed processes have written is there by then.
constexpr Duration kDrainTimeout = std::chrono::milliseconds(500);

std::string marker(const std::string& launch_id) { return "C10D_LAUNCH_ID=" + launch_id; }

[[noreturn]] void throw_resource(std::string_view what) {
  throw_failure(
      {.code = Code::out_of_resources, .message = fmt::format("{}: {}", what, error_text(errno))});
}

// The job's secret in memory that ranks inherit: not in their arguments, not in their environment,
// and sealed.
Fd make_token_memory(const std::string& token) {
  Fd made(memfd_create("c10d-token", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made) throw_resource("cannot make memory for the job's token");
  Fd fd(fcntl(made.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const auto size = static_cast<ssize_t>(token.size());
  if (!fd || pwrite(fd.get(), token.data(), token.size(), 0) != size ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    throw_resource("cannot fill the memory of the job's token");
  return fd;
}

}  // namespace

Job::Job(const LaunchOptions& options)
    : options_(options),
      alone_(options.hosts.count == 1),
      status_columns_(options.status_line ? terminal_columns() : 0),
      launch_id_("c10d-" + to_hex(random_bytes(8))),
      id_(alone_ ? launch_id_ : options.hosts.job),
      token_(alone_ ? random_bytes(32) : options.hosts.token),
      guardian_(marker(launch_id_)),
      token_fd_(make_token_memory(token_)),
      null_input_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  if (!null_input_) throw_resource("cannot open /dev/null");
  const MultiHostOptions& hosts = options_.hosts;
  const auto ranks = static_cast<std::size_t>(options_.ranks);
  // Of several hosts only the number is known yet, with a launcher on each.
  descriptors_.make_room(ranks, alone_ ? ranks : static_cast<std::size_t>(hosts.count));
  if (alone_) {
    store_ = make_tcp_store({.server = true,
                             .job = id_,
                             .token = token_,
                             .limits = {.clients = StoreLimits().clients + ranks}});
    std::tie(master_port_holder_, master_port_) = hold_port();
    world_.size = options_.ranks;
    return;
  }
  // With an address that is not this host's, the rendezvous has more to say.
  if (hosts.number == 0) try {
      std::tie(master_port_holder_, master_port_) = hold_port(hosts.address);
    } catch (const DistError&) {
    }
  phase_ = Phase::meeting;
  rendezvous_ = std::make_unique<Rendezvous>(hosts, options_.ranks, master_port_);
}

Job::~Job() {
  if (status_columns_ > 0) print_status({});
  if (phase_ < Phase::draining) kill_all();
  const Deadline give_up = steady_clock::now() + kKillTimeout;
  for (const auto& rank : ranks_) {
    pollfd entry{rank->child.pidfd.get(), POLLIN, 0};
    while (poll(&entry, 1, poll_timeout(give_up)) < 0 && errno == EINTR) {
    }
    if (waitpid(rank->child.pid, nullptr, WNOHANG) == 0) {
      log(LogLevel::error, "process {} of rank {} does not die; it hangs in the kernel",
          rank->child.pid, rank->result.rank);
    }
  }
}

LaunchResult Job::run() try {
  if (alone_) start_all(world_);
  if (options_.timeout > Duration::zero()) {
    deadline_ = steady_clock::now() + clamp_timeout(options_.timeout);
    signals_.end_by(*deadline_);
  }
  while (phase_ != Phase::done) {
    poll_once();
    take_signals();
    if (rendezvous_) take_news();
    advance();
  }
  return result();
} catch (const std::exception& error) {
  if (rendezvous_) rendezvous_->fail(kBrokenCode, error.what());
  throw;
}

void Job::start_all(const World& world) {
  world_ = world;
  if (!alone_) {
    master_port_ = world.master_port;
    const int clients = options_.hosts.number == 0 ? world.size + options_.hosts.count : 1;
    descriptors_.make_room(static_cast<std::size_t>(options_.ranks),
                           static_cast<std::size_t>(clients));
  }
  phase_ = Phase::running;
  for (int local_rank = 0; local_rank < options_.ranks; ++local_rank) start(local_rank);
}

JobFacts Job::facts() const {
  JobFacts facts;
  facts.id = id_;
  facts.launch_id = launch_id_;
  facts.token_fd = token_fd_.get();
  facts.master_port = master_port_;
  facts.first_rank = world_.first_rank;
  facts.size = world_.size;
  facts.status_columns = status_columns_;
  if (alone_) {
    facts.store_host = facts.master_host = store_->host();
    facts.store_port = store_->port();
  } else {
    const MultiHostOptions& hosts = options_.hosts;
    facts.store_host = facts.master_host = without_brackets(hosts.address);
    facts.store_port = hosts.port;
    facts.local_address = hosts.local_address.empty() ? address_towards(hosts.address)
                                                      : without_brackets(hosts.local_address);
  }
  return facts;
}

void Job::start(int local_rank) {
  auto [out, out_writer] = make_pipe();
  auto [err, err_writer] = make_pipe();
  fcntl(out.get(), F_SETFL, O_NONBLOCK);
  fcntl(err.get(), F_SETFL, O_NONBLOCK);
  // A rank in a process group of its own would be stopped when it reads from the terminal.
  const int rank = world_.first_rank + local_rank;
  const bool gives_input =
      rank == 0 && isatty(STDIN_FILENO) == 0 && fcntl(STDIN_FILENO, F_GETFD) >= 0;
  auto started = std::make_unique<Rank>();
  started->result.rank = rank;
  started->out.fd = std::move(out);
  started->err.fd = std::move(err);
  started->child = spawn({
      .path = find_program(options_.command.front()),
      .command = options_.command,
      .environment = rank_environment(options_, facts(), local_rank),
      .stdin_fd = gives_input ? STDIN_FILENO : null_input_.get(),
      .stdout_fd = out_writer.get(),
      .stderr_fd = err_writer.get(),
      .kept_fd = token_fd_.get(),
      .registration_fd = guardian_.registration_fd(),
      .descriptors = descriptors_.callers(),
  });
  started->result.pid = started->child.pid;
  ranks_.push_back(std::move(started));
  ++running_;
}

void Job::poll_once() {
  enum Kind { news, out, err, ended };
  struct Source {
    Kind kind;
    Rank* rank;
  };
  std::vector<pollfd> entries{{signals_.fd(), POLLIN, 0}};
  std::vector<Source> sources{{news, nullptr}};
  const auto add = [&](const Fd& fd, Kind kind, Rank& rank) {
    if (!fd) return;
    entries.push_back({fd.get(), POLLIN, 0});
    sources.push_back({kind, &rank});
  };
  if (rendezvous_ && !verdict_) {
    entries.push_back({rendezvous_->fd(), POLLIN, 0});
    sources.push_back({news, nullptr});
  }
  for (const auto& rank : ranks_) {
    add(rank->out.fd, out, *rank);
    add(rank->err.fd, err, *rank);
    if (!rank->ended) add(rank->child.pidfd, ended, *rank);
  }
  const int timeout = deadline_ ? poll_timeout(*deadline_) : -1;
  if (poll(entries.data(), entries.size(), timeout) <= 0) return;

  std::vector<Rank*> now_ended;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents == 0) continue;
    Rank* rank = sources[i].rank;
    if (sources[i].kind == out) read_stream(*rank, false);
    if (sources[i].kind == err) read_stream(*rank, true);
    if (sources[i].kind == ended) now_ended.push_back(rank);
  }
  note_ended(std::move(now_ended));
}

void Job::read_stream(Rank& rank, bool is_stderr) {
  Stream& stream = is_stderr ? rank.err : rank.out;
  const auto sink = [&](std::string_view line) {
    if (is_stderr) rank.tail.add(line);
    if (options_.on_line) {
      options_.on_line(rank.result.rank, is_stderr, line);
    } else {
      print_rank_line(rank.result.rank, is_stderr, line, options_.prefix_output);
    }
  };
  const OutputBatch batch;  // of what one read brings
  const bool has_status = is_stderr && rank.result.rank == 0 && status_columns_ > 0;
  const auto status = has_status ? LineSplitter::Sink(print_status) : LineSplitter::Sink();
  std::array<char, std::size_t{64} << 10> bytes;
  const ssize_t n = read(stream.fd.get(), bytes.data(), bytes.size());
  if (n > 0) return stream.lines.add({bytes.data(), static_cast<std::size_t>(n)}, sink, status);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  stream.fd.reset();
  stream.lines.finish(sink, status);
}

void Job::note_ended(std::vector<Rank*> ended) {
  for (Rank* rank : ended) {
    siginfo_t info{};
    rank->ended = true;
    --running_;
    if (waitid(P_PID, static_cast<id_t>(rank->child.pid), &info, WEXITED | WNOWAIT) != 0) {
      log(LogLevel::error, "rank {}: its exit status was taken by other code of this process",
          rank->result.rank);
      rank->result.exit_code = 255;
    } else if (info.si_code == CLD_EXITED) {
      rank->result.exit_code = info.si_status;
    } else {
      rank->result.signal = info.si_status;
      rank->result.exit_code = 128 + info.si_status;
    }
  }
  // Of several at once, a rank that was killed is rather the cause than one that gave up.
  std::stable_partition(ended.begin(), ended.end(),
                        [](const Rank* rank) { return rank->result.signal != 0; });
  for (const Rank* rank : ended)
    if (rank->result.exit_code != 0) note_failure(*rank);
}

void Job::note_failure(const Rank& rank) {
  if (verdict_ || timed_out_) return;  // stopped for another host's sake, or by us
  const bool is_first = first_failed_ < 0;
  if (is_first) first_failed_ = rank.result.rank;
  if (++failures_ > options_.max_failures && phase_ == Phase::running) stop(SIGTERM);
  if (is_first) {
    cause_by_ = steady_clock::now() + clamp_timeout(options_.grace);
    if (rendezvous_) tell_others(rank);
    return;
  }
  // The kernel takes apart the memory of a killed process before it reports the end, which takes a
  // second for a large one: by then its peers have failed because of it. Only somebody else sends
  // SIGKILL before we do. Where ranks go on without those that failed, one that is killed later is
  // another matter.
  const int first_signal = rank_of(first_failed_).result.signal;
  if (rank.result.signal == SIGKILL && first_signal == 0 && phase_ != Phase::killed &&
      steady_clock::now() < cause_by_)
    first_failed_ = rank.result.rank;
}

void Job::tell_others(const Rank& rank) {
  const RankResult& result = rank.result;
  rendezvous_->fail(
      result.exit_code,
      fmt::format("rank {} (pid {}) failed first: {}; its last lines are in the output there",
                  result.rank, result.pid,
                  result.signal != 0 ? fmt::format("killed by signal {}", result.signal)
                                     : fmt::format("exit code {}", result.exit_code)));
}

void Job::take_news() {
  if (const auto world = rendezvous_->take_world(); world && phase_ == Phase::meeting)
    start_all(*world);
  if (auto verdict = rendezvous_->take_verdict()) verdict_ = std::move(verdict);
  if (verdict_ && phase_ == Phase::meeting)
    throw_failure({.code = verdict_->code, .message = verdict_->text});
  if (verdict_ && phase_ == Phase::running) stop(SIGTERM);
}

void Job::take_signals() {
  while (const std::optional<int> signal = signals_.take()) {
    log(LogLevel::info, "forwarding signal {} to {} ranks", *signal, running_);
    if (forwarded_signal_ == 0) forwarded_signal_ = *signal;
    // With no rank left, or none yet, to end by it.
    if (phase_ == Phase::meeting || phase_ == Phase::waiting)
      rendezvous_->fail(128 + *signal, fmt::format("its launcher got signal {}", *signal));
    if (phase_ == Phase::meeting || phase_ == Phase::running) {
      stop(*signal);
    } else if (phase_ == Phase::stopping) {
      send_all(*signal);
    }
  }
}

void Job::stop(int signal) {
  std::vector<pid_t> running;
  for (const auto& rank : ranks_)
    if (!rank->ended) running.push_back(rank->child.pid);
  try {
    places_ = places_of(attach(running), steady_ns());
  } catch (const std::exception& error) {  // what matters is the signal
    log(LogLevel::warn, "where the ranks were could not be read: {}", error.what());
  }
  send_all(signal);
  phase_ = Phase::stopping;
  deadline_ = steady_clock::now() + clamp_timeout(options_.grace);
}

void Job::kill_all() {
  send_all(SIGKILL);
  kill_marked_processes(marker(launch_id_).c_str());
}

// To the groups of all ranks, ended ones too: their children may still run.
void Job::send_all(int signal) {
  for (const auto& rank : ranks_) kill(-rank->child.pid, signal);
}

void Job::advance() {
  const bool late = deadline_ && steady_clock::now() >= *deadline_;
  if ((phase_ == Phase::meeting || (phase_ == Phase::running && running_ > 0)) && late) {
    stop_late();
  } else if (phase_ == Phase::stopping && late) {
    kill_all();
    phase_ = Phase::killed;
    deadline_ = steady_clock::now() + kKillTimeout;
  } else if (phase_ > Phase::meeting && phase_ < Phase::draining && (running_ == 0 || late)) {
    kill_all();
    phase_ = Phase::draining;
    deadline_ = steady_clock::now() + kDrainTimeout;
  }
  // Nothing more may come that would wake the loop.
  if (phase_ == Phase::draining && (!streams_open() || steady_clock::now() >= *deadline_)) finish();
  if (phase_ == Phase::waiting && verdict_) phase_ = Phase::done;
}

void Job::stop_late() {
  timed_out_ = true;
  if (rendezvous_) rendezvous_->fail(kTimedOutCode, "the time for the whole run is over");
  stop(SIGTERM);
}

// This host's ranks are gone. The others' may still run, and need the store that host 0 serves.
void Job::finish() {
  phase_ = rendezvous_ && !verdict_ ? Phase::waiting : Phase::done;
  deadline_.reset();
  const bool all_started = ranks_.size() == static_cast<std::size_t>(options_.ranks);
  if (phase_ == Phase::waiting && all_started && first_failed_ < 0 && !timed_out_)
    rendezvous_->ended();
}

bool Job::streams_open() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return rank->out.fd || rank->err.fd; });
}

// Without those that failed.
bool Job::went_on() const {
  return failures_ <= options_.max_failures && failures_ < static_cast<int>(ranks_.size()) &&
         forwarded_signal_ == 0;
}

LaunchResult Job::result() {
  LaunchResult result;
  result.first_failed = first_failed_;
  result.forwarded_signal = forwarded_signal_;
  for (const auto& rank : ranks_) {
    if (!rank->ended) {
      rank->result.signal = SIGKILL;
      rank->result.exit_code = 128 + SIGKILL;
    }
    rank->result.last_lines = rank->tail.text();
    result.ranks.push_back(rank->result);
  }
  if (first_failed_ >= 0 && !went_on()) result.exit_code = rank_of(first_failed_).result.exit_code;
  if (verdict_) {
    result.exit_code = verdict_->exit_code;
    if (verdict_->exit_code != 0 && verdict_->host != options_.hosts.number)
      result.remote_failure = verdict_->text;
  }
  result.rank_positions = std::move(places_);
  result.timed_out = timed_out_;
  if (timed_out_) result.exit_code = kTimedOutCode;
  if (ranks_.empty() && forwarded_signal_ != 0) result.exit_code = 128 + forwarded_signal_;
  return result;
}

}}  // namespace c10d::v0
