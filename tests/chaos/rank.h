// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "c10d/init.h"
#include "tests/chaos/board.h"
#include "tests/chaos/deed.h"
#include "tests/conformance/collective.h"

namespace c10d::chaos {

// Where the ranks of a crew are: what the driver tells each of them.
struct Place {
  std::string backend;
  std::string folder;
  int ranks = 0;
};

std::string board_path(const std::string& folder);
// How the shared memory begins that a rank with this folder leaves behind on purpose; with no
// folder, that of any campaign on this host.
std::string planted_name(const std::string& folder = {});

// One rank in one case: runs the program, checks what comes out, and writes down what it was told.
class CaseRank {
 public:
  CaseRank(Board& board, const Place& place, const Plan& plan, int rank);
  // The program, to its end or to the first failure.
  void run();
  // Goes on with those that are left, where the plan says so, and ends all groups.
  void end();

 private:
  struct Pending {
    int step = 0;
    conformance::Buffers buffers;
    std::unique_ptr<conformance::Collective> collective;
    Work work;
  };

  ProcessGroup init(const std::string& name, const std::vector<int>& members,
                    std::chrono::milliseconds patience);
  void run_steps();
  void run_step(int index);
  void perform(int index, const Case& c);
  void collective(int index, const Case& c);
  void exchange(int index, const Case& c);
  void form(int index);
  void drain(int group);
  void check(int index, const std::string& what);
  void check_collective(int index, const conformance::Collective& collective);
  bool is_culprit_at(int index) const;
  bool is_supported(const ProcessGroup& group, const Case& c) const;
  ProcessGroup& group_of(int index);
  StepLog& log(int index) { return mine_.steps[index]; }
  void end_step(int index, StepEnd end);
  void call_it(Work& work);

  void tell(const Failure& failure);
  void tell_other(const std::string& what);
  int named_by(const Failure& failure, int group) const;
  void give_up();
  void check_same_cause();
  void end_pending();
  void keep_for_mpi(std::list<Pending>& calls);
  void recover();
  void plant_at(int index);

  Board& board_;
  const Place& place_;
  const Plan& plan_;
  const int rank_;
  RankBoard& mine_;
  const Plant plant_;  // none on ranks that tell the truth
  std::shared_ptr<Store> store_;
  std::vector<ProcessGroup> groups_;
  std::vector<Buffer<std::uint8_t>> memory_;
  std::list<Pending> pending_;
  std::shared_ptr<std::atomic<int>> callbacks_ = std::make_shared<std::atomic<int>>(0);
  int callbacks_expected_ = 0;
  int step_ = -1, group_ = kWorld;  // of the call that runs
  bool forming_ = true;
  Deed deed_;
};

// A process that runs case after case as the board says.
void serve(const Place& place, int rank);

}  // namespace c10d::chaos
