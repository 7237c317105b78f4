// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/chaos/judge.h"
#include "tests/chaos/rank.h"

namespace c10d::chaos {

// What the ranks run on.
struct Stage {
  std::string label;     // "native", "gloo", "openmpi", "mpich"
  std::string backend;   // "mpi" of the last two
  std::string launcher;  // their mpirun
};

// What one case came to.
struct Verdict {
  bool deviated = false;
  int told = 0;       // ranks that were told of a failure
  int recovered = 0;  // ranks that went on
  std::vector<Finding> findings;
  std::string log;  // what the ranks wrote, where there are findings
};

// The processes of some ranks, which run case after case until one of them ends.
class Crew {
 public:
  Crew(const Stage& stage, int ranks, Plant plant, const Bounds& bounds);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  Verdict run(const Plan& plan);
  // Whether it can run another case.
  bool is_whole() const { return whole_; }
  // Ends the ranks, and looks for what they left.
  std::vector<Finding> end();

 private:
  void start_ranks();
  void start_store();
  void start_strangers(const Plan& plan);
  pid_t start(const std::vector<std::string>& command);
  bool await_settled(const Plan& plan, Verdict& verdict);
  bool await_idle(const Plan& plan);
  bool is_over(const Plan& plan, int rank);
  void look_at_processes(const Plan& plan, bool idle_counts);
  void set_phase(bool over = false);
  std::string log() const;

  const Stage stage_;
  const Plant plant_;
  const Bounds bounds_;
  Place place_;
  std::unique_ptr<BoardFile> board_;
  std::map<pid_t, std::string> ended_;
  pid_t store_ = -1, strangers_ = -1;
  Ends ends_;
  bool whole_ = true, failed_on_mpi_ = false;
};

// Set by a signal: what runs shall end.
bool is_interrupted() noexcept;
void end_at_signals();

}  // namespace c10d::chaos
