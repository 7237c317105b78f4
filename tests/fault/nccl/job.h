// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/fault/job.h"

namespace c10d::fault {

// How the part of a rank in a test ended.
struct Told {
  std::string end;                    // "ok LINE", "wrong LINE", "error", "(no answer)", ...
  std::string step;                   // what failed
  std::chrono::milliseconds taken{};  // how long it took to fail
  Heard error;                        // if it is one
};
std::ostream& operator<<(std::ostream& out, const Told& told);

enum class Hosts { one, each_its_own };
// Whether a rank may have a host name of its own.
bool may_have_hosts();

// Whether the ranks share GPU 0, as NCCL's test mode allows it: NCCL_HOSTID is set. Each gets one
// of its own.
bool on_one_gpu();

// Ranks of nccl as processes, each on a GPU of its own of the stand-in unless they share one.
class NcclJob {
 public:
  // `script` is FAKE_GPU's; `settings` are more variables, as NAME=VALUE. A rank that has a host of
  // its own is said to be on another one by its host name alone.
  NcclJob(int size, const std::string& script, const std::vector<std::string>& settings = {},
          Hosts hosts = Hosts::one);

  Child& operator[](int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& folder() const { return folder_.path(); }
  void tell_all(const std::string& line);
  // "init NAME ..." of all ranks but one.
  std::string init(const std::string& name, std::chrono::milliseconds timeout,
                   int all_but = -1) const;
  // What a rank says to its next line.
  Told hear(int rank);
  // The same of each rank.
  std::vector<Told> hear_all();
  // What these ranks answer: an error of that code, with all of the words, not later than that.
  void expect_errors(const std::string& code, const std::vector<int>& ranks,
                     std::chrono::milliseconds within, const std::vector<std::string>& words = {});
  // Tells all a line that each must answer with ok.
  void expect_ok(const std::string& line);
  // Ends the ranks, whose status must be 0; what the judge finds. Leftovers count if
  // `all_is_freed`.
  void expect_clean_end(bool all_is_freed = true);

  // How often the rank has called a function of the driver or of NCCL, and the number of the first
  // call from each place: after its end, and as far as the script says it (tests/fake_gpu/README).
  struct Calls {
    int count = 0;
    std::map<std::string, int> first;
  };
  std::map<std::string, Calls> calls(int rank) const;
  // What the rank has logged.
  std::string log(int rank) const;

 private:
  std::string log_file(int rank) const;

  TemporaryDirectory folder_;
  std::vector<Child> ranks_;
  std::vector<pid_t> pids_;
};

// Some at a time: most of what they take is waiting.
template <class Item, class Task>
void for_each(const std::vector<Item>& items, const Task& task) {
  constexpr int kAtATime = 4;
  load_factor();
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < kAtATime; ++i)
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < items.size(); at = next++) task(items[at]);
    });
}

}  // namespace c10d::fault
