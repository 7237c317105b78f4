// SPDX-License-Identifier: BSD-3-Clause
// The mismatch matrix: one rank of three makes another call than the others. On every backend,
// every rank gets an error that shows both calls, within a second; none is silent, none crashes.
#include "tests/fault/mismatch.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/fault/job.h"

namespace c10d::fault { namespace {

using Lines = std::vector<std::vector<std::string>>;  // by rank

// One line of a rank, as call_mismatched() writes it.
struct Answer {
  std::string code, part, other, message;
  long milliseconds = -1;
};

Answer parse_answer(const std::string& line) {
  Answer answer;
  std::istringstream words(line);
  std::string op, differs;
  words >> op >> differs >> answer.code >> answer.milliseconds;
  words.get();
  std::getline(words, answer.part, '|');
  std::getline(words, answer.other, '|');
  std::getline(words, answer.message);
  return answer;
}

void check(const std::string& backend, const Lines& lines) {
  const std::vector<MismatchRow> rows = mismatch_rows();
  std::map<std::string, int> tried, named;
  std::vector<long> taken;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string name = std::string(to_string(rows[i].kind)) + " " + rows[i].differs;
    SCOPED_TRACE(backend + ": " + name + ", odd rank " + std::to_string(rows[i].odd));
    bool all = true, left_out = false;
    std::string first;
    for (const auto& of_rank : lines) {
      if (of_rank.size() <= i) {
        ADD_FAILURE() << "no answer: " << (of_rank.empty() ? "" : of_rank.back());
        return;
      }
      const Answer answer = parse_answer(of_rank[i]);
      left_out = answer.code == "unsupported" && answer.part.empty();
      if (left_out) {
        if (&of_rank == &lines.front())
          std::printf("skipped: %s: %s\n", name.c_str(), answer.message.c_str());
        continue;
      }
      if (first.empty()) first = answer.message;
      taken.push_back(answer.milliseconds);
      const bool good =
          answer.code == "mismatch" && answer.message == first &&
          answer.message.find(answer.part) != answer.message.npos &&
          answer.message.find(answer.other) != answer.message.npos &&
          std::chrono::milliseconds(answer.milliseconds) <= bound(std::chrono::seconds(10));
      EXPECT_TRUE(good) << of_rank[i];
      all = all && good;
    }
    if (left_out) continue;
    ++tried[rows[i].differs];
    named[rows[i].differs] += all;
  }
  std::printf("%-8s", backend.c_str());
  for (const auto& [differs, count] : tried)
    std::printf("  %s %d/%d", differs.c_str(), named[differs], count);
  std::sort(taken.begin(), taken.end());
  EXPECT_LE(std::chrono::milliseconds(taken[taken.size() / 2]), bound(std::chrono::seconds(1)))
      << "the median";
  std::printf("  named on every rank; slowest %ld ms\n", taken.back());
}

class Mismatch : public Clean {};

TEST_P(Mismatch, IsNamedOnEveryRank) {
  const std::string folder = temporary_folder() + "/mismatch";
  std::filesystem::create_directory(folder);
  std::vector<Child> ranks;
  for (int rank = 0; rank < kMismatchRanks; ++rank)
    ranks.emplace_back(
        std::vector<std::string>{C10D_FAULT_RANK, "mismatch", GetParam(), std::to_string(rank),
                                 std::to_string(kMismatchRanks), "file:" + folder + "/store"});
  Lines lines(kMismatchRanks);
  for (std::size_t rank = 0; rank < lines.size(); ++rank)
    for (std::string line = ranks[rank].hear(); !line.starts_with("("); line = ranks[rank].hear())
      lines[rank].push_back(line);
  check(GetParam(), lines);
  for (Child& rank : ranks) EXPECT_EQ(rank.end(), 0);
  std::filesystem::remove_all(folder);
}

C10D_ON_EACH_BACKEND(Mismatch);

// With MPI's own launcher; ranks write files, since a launcher mixes what they print.
class MismatchOnMpi : public Clean {};

TEST_P(MismatchOnMpi, IsNamedOnEveryRank) {
  const std::string folder = temporary_folder() + "/mismatch";
  std::filesystem::create_directory(folder);
  Child launcher({GetParam(), "-n", std::to_string(kMismatchRanks), C10D_FAULT_RANK,
                  "mismatch-in-file", "mpi", "file:" + folder + "/store", folder + "/rank"});
  EXPECT_EQ(launcher.end(), 0);
  Lines lines(kMismatchRanks);
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    std::ifstream file(folder + "/rank." + std::to_string(rank));
    for (std::string line; std::getline(file, line);) lines[rank].push_back(line);
  }
  check(std::filesystem::path(GetParam()).extension().string().substr(1), lines);
  std::filesystem::remove_all(folder);
}

C10D_ON_EACH_MPI(MismatchOnMpi);

}}  // namespace c10d::fault
