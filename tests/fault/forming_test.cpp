// SPDX-License-Identifier: BSD-3-Clause
// A rank is stopped somewhere in the making of a group, or of memory that ranks share: at the n-th
// entry into a system call, or exit from one, of its own thread. Every other rank names it at the
// deadline. `--stops=N` makes N of them per backend; a stop is told apart by its number.
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "tests/fault/job.h"

namespace c10d::fault {

int g_stops = 8;

namespace {

class Forming : public Clean {};

constexpr std::chrono::milliseconds kTimeout{1200};

// Of a child that waits for its next line.
class Tracer {
 public:
  explicit Tracer(const Child& child) : pid_(child.pid()) {
    if (ptrace(PTRACE_SEIZE, pid_, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0) {
      problem_ = std::string("no ptrace here: ") + std::strerror(errno);
      return;
    }
    ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr);
    waitpid(pid_, nullptr, __WALL);
  }
  const std::string& problem() const { return problem_; }
  // Lets it run up to there, and stops it.
  void stop_at(int number) const {
    constexpr int kSystemCall = SIGTRAP | 0x80;
    for (int seen = 0, status = 0, signal = 0; seen < number;) {
      ASSERT_EQ(ptrace(PTRACE_SYSCALL, pid_, nullptr, signal), 0) << std::strerror(errno);
      ASSERT_EQ(waitpid(pid_, &status, __WALL), pid_);
      ASSERT_TRUE(WIFSTOPPED(status)) << "the rank ended";
      const bool counts = WSTOPSIG(status) == kSystemCall;
      seen += counts;
      signal = counts || status >> 16 != 0 ? 0 : WSTOPSIG(status);
    }
    ASSERT_EQ(ptrace(PTRACE_DETACH, pid_, nullptr, SIGSTOP), 0) << std::strerror(errno);
  }

 private:
  const pid_t pid_;
  std::string problem_;
};

struct Case {
  explicit Case(unsigned seed) {
    std::mt19937 random(seed);
    call = random() % 2 == 0 ? "new_groups" : "allocations";
    ranks = 3 + static_cast<int>(random() % 3);
    victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    number = 1 + static_cast<int>(random() % kDeepest);
  }
  std::string text() const {
    return call + ", rank " + std::to_string(victim) + " of " + std::to_string(ranks) +
           " stopped at " + std::to_string(number);
  }

  static constexpr unsigned kDeepest = 600;  // some rounds of calls
  std::string call;
  int ranks, victim, number;
};

TEST_P(Forming, TheRankThatIsStoppedIsNamed) {
  for (int i = 0; i < g_stops; ++i) {
    const Case the(static_cast<unsigned>(i));
    SCOPED_TRACE("stop " + std::to_string(i) + ": " + the.text());
    Job job(GetParam(), the.ranks, Rendezvous::store_process);
    const Tracer tracer(job[the.victim]);
    if (!tracer.problem().empty()) GTEST_SKIP() << tracer.problem();
    job.tell_all_but(-1, the.call + " " + std::to_string(bound(kTimeout).count()));
    ASSERT_NO_FATAL_FAILURE(tracer.stop_at(the.number));
    for (const Heard& error : job.errors_of_all_but(the.victim)) {
      EXPECT_EQ(error.code, "timed_out") << error.what;
      EXPECT_EQ(error.rank, the.victim) << error.what;
      EXPECT_EQ(error.pid, job[the.victim].pid()) << error.what;
    }
  }
}

C10D_ON_EACH_BACKEND(Forming);

}  // namespace
}  // namespace c10d::fault

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kStops = "--stops=";
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with(kStops))
      c10d::fault::g_stops = std::stoi(argv[i] + kStops.size());
  return RUN_ALL_TESTS();
}
