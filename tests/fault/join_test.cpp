// SPDX-License-Identifier: BSD-3-Clause
// A rank that dies or fails while the others wait for it in the making of a group, or of memory
// that they share: they end with an error that names it, and not at their deadline.
#include <filesystem>
#include <fstream>

#include "tests/fault/job.h"

namespace c10d::fault { namespace {

constexpr int kRanks = 3;

class Join : public Clean {
 public:
  // Where a rank can come to grief, as the key of the store that it touches there: in the control
  // plane on every backend, and where a backend uses the store itself.
  static std::vector<std::string> places() {
    if (GetParam() == "native") return {"/control:1", "/native:1", "/heap/0:1"};
    if (GetParam() == "gloo") return {"/control:1", "/gloo/:1", "/gloo/:2"};
    return {"/control:1"};
  }
  // All ranks on their way into a group, or already there and allocating. Who was served before the
  // victim came to grief has its memory, and learns of it in the next call.
  static void go(Job& job, const std::string& place, int victim) {
    if (place.find("/heap/") == place.npos) return;
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(job[rank].hear(), "ready");
    job.tell_all_but(-1, "allocate 1000");
    job.tell_all_but(victim, "all_reduce 10");
  }
};

TEST_P(Join, ARankThatDiesIsNamedByTheOthers) {
  for (const std::string& place : places()) {
    for (const int victim : {0, kRanks - 1}) {
      Job job(GetParam(), kRanks, {.rank = victim, .how = "die:" + place});
      go(job, place, victim);
      for (const Heard& error : job.errors_of_all_but(victim)) {
        EXPECT_EQ(error.code, "peer_died") << place << " " << victim << error.what;
        EXPECT_EQ(error.rank, victim) << place << error.what;
        EXPECT_EQ(error.pid, job[victim].pid()) << place << error.what;
      }
      if (HasFailure()) return;  // each takes long to fail
    }
  }
}

// Its process goes on as another program: the world's control plane sees that the rank is gone.
TEST_P(Join, ARankThatBecomesAnotherProgramIsNamedByTheOthers) {
  for (const int victim : {0, kRanks - 1}) {
    Job job(GetParam(), kRanks, {.rank = victim, .how = "exec:/control:2"});
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(job[rank].hear(), "ready");
    const auto start = std::chrono::steady_clock::now();
    job.tell_all_but(-1, "new_groups 30000");
    for (const Heard& error : job.errors_of_all_but(victim)) {
      EXPECT_EQ(error.code, "peer_died") << error.what;
      EXPECT_EQ(error.rank, victim) << error.what;
      EXPECT_EQ(error.pid, job[victim].pid()) << error.what;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, bound(std::chrono::seconds(5)));
    if (HasFailure()) return;
  }
}

TEST_P(Join, ARankThatFailsTellsTheOthersWhy) {
  for (const std::string& place : places()) {
    for (const int victim : {0, kRanks - 1}) {
      Job job(GetParam(), kRanks, {.rank = victim, .how = "throw:" + place});
      go(job, place, victim);
      for (const Heard& error : job.errors_of_all_but(-1)) {
        EXPECT_EQ(error.code, "store_error") << place << " " << victim << error.what;
        EXPECT_NE(error.what.find("the trap was sprung"), std::string::npos) << error.what;
      }
      if (HasFailure()) return;
    }
  }
}

C10D_ON_EACH_BACKEND(Join);

// With MPI's own launcher. What is asked of MPI there blocks in every rank, and nothing ends it: so
// whatever keeps one rank away must be told before, or the others must be able to leave.
class JoinOnMpi : public Clean {
 public:
  // The last line of each rank but the victim, of one run.
  static std::vector<std::string> last_lines(const std::string& trap) {
    const std::string folder = temporary_folder() + "/mpi";
    std::filesystem::create_directory(folder);
    // A launcher whose ranks do not end as MPI wants may leave files of its own.
    Child launcher({"/usr/bin/env", "TMPDIR=" + folder, GetParam(), "-n", std::to_string(kRanks),
                    C10D_FAULT_RANK, "make-on-mpi", "file:" + folder + "/store", folder + "/rank",
                    std::to_string(kVictim), trap});
    launcher.end();
    std::vector<std::string> lines;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == kVictim) continue;
      lines.emplace_back("(nothing)");
      std::ifstream file(folder + "/rank." + std::to_string(rank));
      for (std::string line; std::getline(file, line);) lines.back() = line;
    }
    std::filesystem::remove_all(folder);
    return lines;
  }

 protected:
  static constexpr int kVictim = 1;
};

TEST_P(JoinOnMpi, AllRanksGetTheirGroups) {
  for (const std::string& line : last_lines("none")) EXPECT_EQ(line, "ready");
}

TEST_P(JoinOnMpi, ARankThatExitsIsNamedByTheOthers) {
  for (const std::string& line : last_lines("exit")) {
    const Heard error = parse_error(line);
    EXPECT_EQ(error.code, "peer_died") << line;
    EXPECT_EQ(error.rank, kVictim) << line;
  }
}

TEST_P(JoinOnMpi, ARankThatCannotStartMpiTellsTheOthersWhy) {
  for (const std::string& line : last_lines("stranger")) {
    const Heard error = parse_error(line);
    EXPECT_EQ(error.code, "unsupported") << line;
    EXPECT_EQ(error.rank, kVictim) << line;
  }
}

TEST_P(JoinOnMpi, ARankWhereMpiFailsTellsTheOthersWhy) {
  if (flavour_of({GetParam(), 0}) == "openmpi")
    GTEST_SKIP() << "this mpirun crashes or hangs now and then when ranks end without MPI_Finalize";
  for (const char* trap : {"fail:1", "fail:3", "fail:4"})  // the third is the world's last
    for (const std::string& line : last_lines(trap)) {
      const Heard error = parse_error(line);
      EXPECT_EQ(error.code, "backend_error") << trap << ": " << line;
      EXPECT_EQ(error.rank, kVictim) << trap << ": " << line;
    }
}

C10D_ON_EACH_MPI(JoinOnMpi);

}}  // namespace c10d::fault
