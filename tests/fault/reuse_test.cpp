// SPDX-License-Identifier: BSD-3-Clause
// A group breaks in the middle of an op, and a rank whose op failed overwrites its memory at once:
// an op that succeeds on another rank has the right data all the same, and every op ends.
// `--rounds=N` breaks N groups per backend; MPICH has communicators for some 600.
#include "tests/fault/reuse.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/fault/job.h"

namespace c10d::fault {

int g_rounds = 100;

namespace {

void expect_right(const std::string& line) {
  EXPECT_TRUE(line.starts_with(std::to_string(g_rounds) + " rounds, ")) << line;
  EXPECT_FALSE(line.ends_with(", 0 ops were right")) << line;
  std::printf("%s\n", line.c_str());
}

class Reuse : public Clean {};

TEST_P(Reuse, NobodyTakesWhatAFailedRankWrites) {
  const std::string folder = temporary_folder() + "/reuse";
  std::filesystem::create_directory(folder);
  std::vector<Child> ranks;
  for (int rank = 0; rank < kReuseRanks; ++rank)
    ranks.emplace_back(std::vector<std::string>{C10D_FAULT_RANK, "reuse", GetParam(),
                                                std::to_string(rank), "file:" + folder + "/store",
                                                std::to_string(g_rounds)});
  for (Child& rank : ranks) expect_right(rank.hear(std::chrono::minutes(4)));
  for (Child& rank : ranks) EXPECT_EQ(rank.end(), 0);
  std::filesystem::remove_all(folder);
}

C10D_ON_EACH_BACKEND(Reuse);

class ReuseOnMpi : public Clean {};

// Ranks that MPI was not done with exit without MPI_Finalize. What the launcher says of them is not
// looked at, nor what it leaves: Open MPI's may crash or stay then.
TEST_P(ReuseOnMpi, NobodyTakesWhatAFailedRankWrites) {
  const std::string folder = temporary_folder() + "/reuse";
  std::filesystem::create_directory(folder);
  setenv("TMPDIR", folder.c_str(), 1);
  Child({GetParam(), "-n", std::to_string(kReuseRanks), C10D_FAULT_RANK, "reuse-on-mpi",
         folder + "/rank", "file:" + folder + "/store", std::to_string(g_rounds)})
      .end();
  setenv("TMPDIR", temporary_folder().c_str(), 1);
  for (int rank = 0; rank < kReuseRanks; ++rank) {
    std::ifstream file(folder + "/rank." + std::to_string(rank));
    std::string line;
    std::getline(file, line);
    expect_right(line);
  }
  std::filesystem::remove_all(folder);
}

C10D_ON_EACH_MPI(ReuseOnMpi);

}  // namespace
}  // namespace c10d::fault

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kRounds = "--rounds=";
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with(kRounds))
      c10d::fault::g_rounds = std::stoi(argv[i] + kRounds.size());
  return RUN_ALL_TESTS();
}
