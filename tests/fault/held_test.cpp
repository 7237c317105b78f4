// SPDX-License-Identifier: BSD-3-Clause
// A rank that stops inside a call of MPI, which knows no deadline: the others end with an error at
// theirs, and their processes end.
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/fault/job.h"

namespace c10d::fault { namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kRanks = 3;
constexpr int kVictim = 1;

// Reaped or not.
bool is_gone(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  return !std::getline(file, line) || line.substr(line.rfind(") ")).starts_with(") Z");
}

// A job whose rank 1 stops in the function of MPI that `trap` names.
class HeldJob {
 public:
  HeldJob(const std::string& launcher, const std::string& trap)
      : folder_(temporary_folder() + "/" + trap), trap_(trap) {
    std::filesystem::create_directory(folder_);
    launcher_.emplace_back(std::vector<std::string>{
        "/usr/bin/env", "TMPDIR=" + folder_, launcher, "-n", std::to_string(kRanks),
        C10D_FAULT_RANK, "held-on-mpi", "file:" + folder_ + "/store", folder_ + "/rank",
        std::to_string(kVictim), trap,
        std::to_string(bound(trap == "MPI_Finalize" ? kTimeoutOfWorld : kTimeout).count())});
  }
  // The launcher may wait for a rank for ever.
  ~HeldJob() {
    for (int rank = 0; rank < kRanks; ++rank)
      if (const pid_t pid = pid_of(rank); pid > 0) kill(pid, SIGKILL);
    for (std::string line; !line.starts_with("(");) line = launcher_.front().hear(kPatience);
    launcher_.clear();
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  HeldJob(const HeldJob&) = delete;
  HeldJob& operator=(const HeldJob&) = delete;

  const std::string& trap() const { return trap_; }
  std::vector<std::string> lines_of(int rank) const {
    std::vector<std::string> lines;
    std::ifstream file(folder_ + "/rank." + std::to_string(rank));
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  // The line of that rank that begins so; waits for it.
  std::string line_of(int rank, const std::string& start) const {
    const auto deadline = steady_clock::now() + Child::kPatience;
    do {
      for (const std::string& line : lines_of(rank))
        if (line.starts_with(start)) return line;
      std::this_thread::sleep_for(milliseconds(10));
    } while (steady_clock::now() < deadline);
    return "(no answer)";
  }
  bool ends(int rank) const {
    const auto deadline = steady_clock::now() + Child::kPatience;
    const pid_t pid = pid_of(rank);
    while (pid > 0 && !is_gone(pid)) {
      if (steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return true;
  }

 private:
  static constexpr milliseconds kTimeout{3000}, kTimeoutOfWorld{8000};
  static constexpr milliseconds kPatience{20000};

  pid_t pid_of(int rank) const {
    const std::vector<std::string> lines = lines_of(rank);
    const bool known = !lines.empty() && lines.front().starts_with("pid ");
    return known ? std::stoi(lines.front().substr(4)) : -1;
  }

  const std::string folder_, trap_;
  std::vector<Child> launcher_;
};

class HeldOnMpi : public Clean {
 public:
  static void expect_late_and_ended(const HeldJob& job) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == kVictim) continue;
      const Heard error = parse_error(job.line_of(rank, "error"));
      EXPECT_EQ(error.code, "timed_out") << job.trap() << ", rank " << rank << ": " << error.what;
      EXPECT_TRUE(job.ends(rank)) << job.trap() << ", rank " << rank;
      if (HasFailure()) return;  // each takes long to fail
    }
  }
};

// All at once: most of it is waiting.
TEST_P(HeldOnMpi, TheOthersEndAtTheirDeadline) {
  const HeldJob start(GetParam(), "MPI_Init_thread"), group(GetParam(), "MPI_Comm_create_group"),
      small(GetParam(), "MPI_Allreduce"), large(GetParam(), "MPI_Iallreduce");
  for (const HeldJob* job : {&start, &group, &small, &large}) expect_late_and_ended(*job);
}

TEST_P(HeldOnMpi, TheOthersExitWithoutFinalising) {
  const HeldJob job(GetParam(), "MPI_Finalize");
  for (int rank = 0; rank < kRanks; ++rank) ASSERT_EQ(job.line_of(rank, "over"), "over");
  std::string all;
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(job.ends(rank)) << rank;
    for (const std::string& line : job.lines_of(rank)) all += line + "\n";
  }
  // The first to exit says why; the launcher may end the other with it.
  EXPECT_NE(all.find("in MPI_Finalize for the other ranks; ended or stopped: rank 1 "), all.npos)
      << all;
  EXPECT_EQ(all.find("\nerror "), all.npos) << all;
}

C10D_ON_EACH_MPI(HeldOnMpi);

}}  // namespace c10d::fault
