// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "src/base/log.h"
#include "src/launch/orphans.h"

namespace c10d { inline namespace v0 {

RankProcesses::~RankProcesses() {
  if (status_columns_ > 0) print_status({});
  const Deadline give_up = std::chrono::steady_clock::now() + kKillTimeout;
  for (const auto& rank : ranks_) {
    pollfd entry{rank->child.pidfd.get(), POLLIN, 0};
    while (::poll(&entry, 1, poll_timeout(give_up)) < 0 && errno == EINTR) {
    }
    if (waitpid(rank->child.pid, nullptr, WNOHANG) == 0) {
      log(LogLevel::error, "process {} of rank {} does not die; it hangs in the kernel",
          rank->child.pid, rank->result.rank);
    }
  }
}

void RankProcesses::start(const World& world) {
  const JobFacts facts = resources_.facts(world);
  status_columns_ = facts.status_columns;
  for (int local_rank = 0; local_rank < options_.ranks; ++local_rank) start_rank(facts, local_rank);
}

void RankProcesses::start_rank(const JobFacts& facts, int local_rank) {
  auto [out, out_writer] = make_pipe();
  auto [err, err_writer] = make_pipe();
  fcntl(out.get(), F_SETFL, O_NONBLOCK);
  fcntl(err.get(), F_SETFL, O_NONBLOCK);
  const int rank = facts.first_rank + local_rank;
  SpawnOptions spawned = resources_.spawn_options();
  spawned.environment = rank_environment(options_, facts, local_rank);
  if (!facts.cpus.empty()) spawned.cpus = facts.cpus[static_cast<std::size_t>(local_rank)];
  // A rank in a process group of its own would be stopped when it reads from the terminal.
  if (rank == 0 && isatty(STDIN_FILENO) == 0 && fcntl(STDIN_FILENO, F_GETFD) >= 0)
    spawned.stdin_fd = STDIN_FILENO;
  spawned.stdout_fd = out_writer.get();
  spawned.stderr_fd = err_writer.get();
  auto started = std::make_unique<Rank>();
  started->result.rank = rank;
  started->out.fd = std::move(out);
  started->err.fd = std::move(err);
  started->child = spawn(spawned);
  started->result.pid = started->child.pid;
  ranks_.push_back(std::move(started));
  ++running_;
}

std::vector<const RankResult*> RankProcesses::poll(const std::vector<int>& others,
                                                   const std::optional<Deadline>& deadline) {
  enum Kind { other, out, err, ended };
  struct Source {
    Kind kind;
    Rank* rank;
  };
  std::vector<pollfd> entries;
  std::vector<Source> sources;
  const auto add = [&](int fd, Kind kind, Rank* rank) {
    if (fd < 0) return;
    entries.push_back({fd, POLLIN, 0});
    sources.push_back({kind, rank});
  };
  for (const int fd : others) add(fd, other, nullptr);
  for (const auto& rank : ranks_) {
    add(rank->out.fd.get(), out, rank.get());
    add(rank->err.fd.get(), err, rank.get());
    if (!rank->ended) add(rank->child.pidfd.get(), ended, rank.get());
  }
  if (::poll(entries.data(), entries.size(), deadline ? poll_timeout(*deadline) : -1) <= 0)
    return {};

  std::vector<const RankResult*> now_ended;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents == 0) continue;
    Rank* rank = sources[i].rank;
    if (sources[i].kind == out) read_stream(*rank, false);
    if (sources[i].kind == err) read_stream(*rank, true);
    if (sources[i].kind != ended) continue;
    note_ended(*rank);
    now_ended.push_back(&rank->result);
  }
  // Of several at once, a rank that was killed is more likely the cause than one that gave up.
  std::stable_partition(now_ended.begin(), now_ended.end(),
                        [](const RankResult* result) { return result->signal != 0; });
  return now_ended;
}

void RankProcesses::read_stream(Rank& rank, bool is_stderr) {
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
  (is_stderr ? rank.err : rank.out).read(sink, status);
}

void RankProcesses::note_ended(Rank& rank) {
  siginfo_t info{};
  rank.ended = true;
  --running_;
  if (waitid(P_PID, static_cast<id_t>(rank.child.pid), &info, WEXITED | WNOWAIT) != 0) {
    log(LogLevel::error, "rank {}: its exit status was taken by other code of this process",
        rank.result.rank);
    rank.result.exit_code = 255;
  } else if (info.si_code == CLD_EXITED) {
    rank.result.exit_code = info.si_status;
  } else {
    rank.result.signal = info.si_status;
    rank.result.exit_code = 128 + info.si_status;
  }
}

void RankProcesses::signal(int number) {
  for (const auto& rank : ranks_) kill(-rank->child.pid, number);
}

void RankProcesses::kill_all() {
  signal(SIGKILL);
  kill_marked_processes(resources_.marker().c_str());
}

std::vector<pid_t> RankProcesses::running_pids() const {
  std::vector<pid_t> pids;
  for (const auto& rank : ranks_)
    if (!rank->ended) pids.push_back(rank->child.pid);
  return pids;
}

bool RankProcesses::streams_open() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return rank->out.fd || rank->err.fd; });
}

std::vector<RankResult> RankProcesses::results() {
  std::vector<RankResult> results;
  for (const auto& rank : ranks_) {
    if (!rank->ended) {
      rank->result.signal = SIGKILL;
      rank->result.exit_code = 128 + SIGKILL;
    }
    rank->result.last_lines = rank->tail.text();
    results.push_back(rank->result);
  }
  return results;
}

}}  // namespace c10d::v0
