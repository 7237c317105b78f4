// SPDX-License-Identifier: BSD-3-Clause
#include "tests/chaos/crew.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <stdexcept>

#include "tests/chaos/processes.h"
#include "tests/chaos/strangers.h"

namespace c10d::chaos {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLook{5};

std::atomic<bool> g_interrupted{false};

// Without what another campaign on this host has planted.
std::vector<std::string> named_memory(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(planted_name()) && !name.starts_with(planted_name(folder))) continue;
    if (name.find("c10d") != std::string::npos) names.push_back(entry.path());
  }
  return names;
}

// A rank that does not arrive back is a finding of its own: the process of the store ends with us.
[[noreturn]] void keep_store(Board& board) {
  try {
    const auto store = make_tcp_store({.server = true});
    board.port = store->port();
    ++board.news;
    wake(board.news);
    while (true) pause();
  } catch (const std::exception&) {
    _exit(1);
  }
}

}  // namespace

bool is_interrupted() noexcept { return g_interrupted; }

void end_at_signals() {
  for (const int signo : {SIGINT, SIGTERM, SIGHUP})
    std::signal(signo, [](int) { g_interrupted = true; });
}

Crew::Crew(const Stage& stage, int ranks, Plant plant, const Bounds& bounds)
    : stage_(stage), plant_(plant), bounds_(bounds) {
  std::string folder = fs::temp_directory_path() / "c10d-chaos-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder " + folder);
  fs::create_directory(folder + "/tmp");
  place_ = {.backend = stage.backend, .folder = folder, .ranks = ranks};
  board_ = std::make_unique<BoardFile>(board_path(folder), true);
  (*board_)->plant = plant;
  start_store();
  start_ranks();
}

Crew::~Crew() {
  end_descendants();
  std::error_code error;
  fs::remove_all(place_.folder, error);
}

// In a process of its own: ours has one thread, so that it can fork.
void Crew::start_store() {
  store_ = start({});
  const std::int64_t end = steady_now() + 20'000'000'000;
  while ((*board_)->port == 0 && steady_now() < end && !is_interrupted())
    wait_while((*board_)->news, 0, milliseconds(100));
  if ((*board_)->port == 0) throw std::runtime_error("the process of the store does not start");
}

// A child with the log as its output: a program, or with no command what the caller goes on with.
pid_t Crew::start(const std::vector<std::string>& command) {
  const std::string log = place_.folder + "/log";
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signo : {SIGINT, SIGTERM, SIGHUP}) std::signal(signo, SIG_DFL);
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(none, STDIN_FILENO);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  setenv("TMPDIR", (place_.folder + "/tmp").c_str(), 1);
  if (command.empty()) keep_store(**board_);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

void Crew::start_ranks() {
  const std::string self = fs::read_symlink("/proc/self/exe");
  const std::string ranks = std::to_string(place_.ranks);
  if (!stage_.launcher.empty()) {
    // Open MPI refuses root and more ranks than cores unless told; MPICH ignores these.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    // What ranks that are killed leave there goes with the folder.
    setenv("OMPI_MCA_btl_vader_backing_directory", (place_.folder + "/tmp").c_str(), 1);
    start({stage_.launcher, "-n", ranks, self, "serve", stage_.backend, place_.folder, ranks});
  } else {
    for (int rank = 0; rank < place_.ranks; ++rank)
      start({self, "serve", stage_.backend, place_.folder, ranks, std::to_string(rank)});
  }
  const std::int64_t end = steady_now() + static_cast<std::int64_t>(60e9 * bounds_.patience);
  Board& board = **board_;
  const auto all_idle = [&] {
    return std::all_of(board.ranks, board.ranks + place_.ranks,
                       [](const RankBoard& rank) { return rank.state == RankState::idle; });
  };
  while (!all_idle() && steady_now() < end && !is_interrupted()) {
    const std::uint32_t news = board.news;
    if (!all_idle()) wait_while(board.news, news, milliseconds(100));
  }
  if (!all_idle()) whole_ = false;
}

void Crew::start_strangers(const Plan& plan) {
  if (!plan.strangers) return;
  strangers_ = fork();
  if (strangers_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  bother_store(static_cast<std::uint16_t>((*board_)->port.load()), plan.seed);
  _exit(0);
}

void Crew::set_phase(bool over) {
  Board& board = **board_;
  if (over) board.over = true;
  ++board.phase;
  wake(board.phase);
}

Verdict Crew::run(const Plan& plan) {
  Board& board = **board_;
  Verdict verdict;
  if (!whole_) {
    verdict.findings.push_back({"start", "the ranks do not arrive together"});
    verdict.log = log();
    return verdict;
  }
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const std::int32_t pid = board.ranks[rank].pid;
    RankBoard* fresh = new (&board.ranks[rank]) RankBoard;
    fresh->pid = pid;
  }
  const bool mpi = !stage_.launcher.empty();
  ends_ = {.launcher_ends_all = mpi && is_death(plan.deviation),
           .keeps_all = mpi && plan.deviation == Deviation::stop,
           .keeps_failed_joins = stage_.backend == "gloo"};
  board.seed = plan.seed;
  ++board.round;
  start_strangers(plan);
  set_phase();
  if (await_settled(plan, verdict)) {
    set_phase();
    if (!await_idle(plan))
      verdict.findings.push_back({"hang", "at the end of the case\n" + places(plan, board)});
  }
  if (strangers_ > 0) kill(strangers_, SIGKILL);
  strangers_ = -1;
  if (is_interrupted()) {
    verdict.findings.clear();
    whole_ = false;
    return verdict;
  }
  verdict.deviated = board.ranks[plan.culprit].deviated != 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    verdict.told += board.ranks[rank].has_failure ? 1 : 0;
    verdict.recovered += std::string_view(board.ranks[rank].recovery) == "ok" ? 1 : 0;
  }
  // Who hangs makes others do what nothing was promised for.
  if (verdict.findings.empty()) verdict.findings = judge(plan, board, ends_, bounds_);
  whole_ = verdict.findings.empty() && !(verdict.deviated && is_death(plan.deviation));
  if (verdict.deviated && plan.deviation == Deviation::stop) whole_ = false;
  failed_on_mpi_ = failed_on_mpi_ || (!stage_.launcher.empty() && verdict.told > 0);
  if (!verdict.findings.empty()) verdict.log = log();
  return verdict;
}

void Crew::look_at_processes(const Plan& plan, bool idle_counts) {
  reap(ended_);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const RankBoard& mine = (*board_)->ranks[rank];
    bool& gone = ends_.gone[static_cast<std::size_t>(rank)];
    const RankState state = mine.state;
    if (gone || (idle_counts && state == RankState::idle)) continue;
    if (!is_gone(mine.pid)) continue;
    gone = true;
    const auto known = ended_.find(mine.pid);
    ends_.how[static_cast<std::size_t>(rank)] = known == ended_.end() ? "?" : known->second;
  }
}

// Whether nothing more comes from that rank in this part of the case.
bool Crew::is_over(const Plan& plan, int rank) {
  const RankBoard& mine = (*board_)->ranks[rank];
  if (ends_.gone[static_cast<std::size_t>(rank)]) return true;
  return rank == plan.culprit && plan.deviation == Deviation::exec && mine.deviated != 0;
}

bool Crew::await_settled(const Plan& plan, Verdict& verdict) {
  Board& board = **board_;
  const std::int64_t end = steady_now() + static_cast<std::int64_t>(15e9 * bounds_.patience);
  bool stopped = plan.deviation == Deviation::stop;
  while (!is_interrupted()) {
    const std::uint32_t news = board.news;
    look_at_processes(plan, false);
    bool all = true, all_others = true;
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const bool settled = board.ranks[rank].state == RankState::settled || is_over(plan, rank);
      all = all && settled;
      all_others = all_others && (settled || rank == plan.culprit);
    }
    if (all) return true;
    RankBoard& culprit = board.ranks[plan.culprit];
    // In MPI a call has no deadline: the others may be there until the stopped one goes on.
    const bool held = !stage_.launcher.empty() && culprit.deviated != 0 &&
                      steady_now() - culprit.deviated > 5'000'000'000;
    if (stopped && culprit.deviated != 0 && (all_others || held)) {
      kill(culprit.pid, SIGCONT);
      stopped = false;
    }
    if (steady_now() > end) {
      verdict.findings.push_back(
          {"hang", "after " + std::to_string(static_cast<int>(15 * bounds_.patience)) + " s\n" +
                       places(plan, board)});
      return false;
    }
    if (board.news == news) wait_while(board.news, news, kLook);
  }
  return false;
}

bool Crew::await_idle(const Plan& plan) {
  Board& board = **board_;
  const std::int64_t end = steady_now() + static_cast<std::int64_t>(25e9 * bounds_.patience);
  while (!is_interrupted()) {
    const std::uint32_t news = board.news;
    look_at_processes(plan, true);
    bool all = true;
    for (int rank = 0; rank < plan.ranks; ++rank)
      all = all && (board.ranks[rank].state == RankState::idle || is_over(plan, rank));
    if (all) return true;
    if (steady_now() > end) return false;
    if (board.news == news) wait_while(board.news, news, kLook);
  }
  return true;
}

std::vector<Finding> Crew::end() {
  std::vector<Finding> findings;
  const auto died = [&] {
    return std::any_of(ends_.gone.begin(), ends_.gone.end(), [](bool gone) { return gone; });
  };
  const bool orderly = whole_ && !died();
  if (store_ > 0) kill(store_, SIGKILL);
  if (orderly) {
    set_phase(true);
    const std::int64_t end = steady_now() + static_cast<std::int64_t>(20e9 * bounds_.patience);
    std::vector<pid_t> left;
    const auto have_ended = [&] {
      return std::all_of((*board_)->ranks, (*board_)->ranks + place_.ranks,
                         [](const RankBoard& rank) { return is_gone(rank.pid); });
    };
    while (!is_interrupted()) {
      reap(ended_);
      // What a rank has left behind does not end, where no launcher waits for it.
      const bool last_look = steady_now() >= end || (stage_.launcher.empty() && have_ended());
      left = descendants();
      std::erase_if(left, [&](pid_t pid) { return pid == store_ || is_gone(pid); });
      if (left.empty() || last_look) break;
      wait_while((*board_)->news, (*board_)->news, kLook);
    }
    for (const pid_t pid : left)
      if (!is_interrupted())
        findings.push_back({"process", "is left: " + std::to_string(pid) + " " + command_of(pid)});
    for (const auto& [pid, how] : ended_)
      if (how != "exit 0" && how != "signal 9" && !failed_on_mpi_)
        findings.push_back({"crash", "process " + std::to_string(pid) + " ended with " + how});
  }
  end_descendants();
  for (const std::string& name : named_memory(place_.folder))
    findings.push_back({"file", "shared memory is left: " + name});
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(place_.folder + "/tmp", error))
    if (entry.path().filename().string().find("c10d") != std::string::npos)
      findings.push_back({"file", "is left: " + entry.path().string()});
  return findings;
}

std::string Crew::log() const {
  std::ifstream file(place_.folder + "/log");
  std::string all((std::istreambuf_iterator<char>(file)), {});
  constexpr std::size_t kMost = 6000;
  return all.size() <= kMost ? all : "...\n" + all.substr(all.size() - kMost);
}

}  // namespace c10d::chaos
