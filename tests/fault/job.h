// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tests/on_each_backend.h"
#include "tests/temporary_directory.h"

namespace c10d::fault {

// A child process that is told lines and says lines. Killed and reaped at the latest when this is
// destroyed.
class Child {
 public:
  explicit Child(const std::vector<std::string>& command);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  pid_t pid() const noexcept { return pid_; }
  void tell(const std::string& line);
  // The next line, or what went wrong: "(it ended)", "(no answer)".
  std::string hear(std::chrono::milliseconds patience = kPatience);
  // The next line that begins with `start`, past others.
  std::string hear_of(const std::string& start);
  void signal(int signo) const { kill(pid_, signo); }
  // Waits until it has stopped, as by SIGSTOP.
  void await_stop() const;
  // Closes its input; the exit status, or 128 + signal. If it does not end by itself: SIGKILL.
  int end();

  static constexpr std::chrono::seconds kPatience{40};

 private:
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string heard_;
};

// "error <code> <rank> <pid> <what>" in parts.
struct Heard {
  std::string code;
  int rank = -1;
  std::int64_t pid = 0;
  std::string what;
};
Heard parse_error(const std::string& line);

enum class Rendezvous { file, store_process };

// For make_trap_store.
struct Trap {
  int rank = 0;
  std::string how;
};

// Ranks of one group as processes, all of which have joined.
class Job {
 public:
  Job(const std::string& backend, int size, Rendezvous rendezvous = Rendezvous::file);
  // One of which walks into a trap: nobody knows how far they have come.
  Job(const std::string& backend, int size, const Trap& trap);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Child& operator[](int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  void tell_all_but(int rank, const std::string& line);
  // What each rank but one says last: the error that ends its op.
  std::vector<Heard> errors_of_all_but(int rank);
  void expect_ok_from_all();
  void expect_no_named_memory() const;
  void kill_store();

 private:
  void start(const std::string& backend, int size, const std::string& place, const Trap& trap);

  TemporaryDirectory folder_;
  std::vector<Child> store_;  // at most one
  std::vector<Child> ranks_;
};

// How much longer things take here and now than on a quiet machine with a release build: 1 unless
// starting four ranks takes ten times as long as it does there.
double load_factor();
std::chrono::milliseconds bound(std::chrono::milliseconds quiet);

// Checks after each test that it has left nothing: no child, no descriptor, no file, no shared
// memory.
class Clean : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

 private:
  std::set<std::string> descriptors_, shared_memory_;
};

// Of the test that runs.
const std::string& temporary_folder();

// The mpirun of each MPI that the mpi backend is built for.
std::vector<std::string> mpi_launchers();
// "mpich" of "/usr/bin/mpirun.mpich".
std::string flavour_of(const testing::TestParamInfo<std::string>& info);

}  // namespace c10d::fault

#define C10D_ON_EACH_MPI(Suite)                                                          \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Suite);                                  \
  INSTANTIATE_TEST_SUITE_P(Each, Suite, testing::ValuesIn(c10d::fault::mpi_launchers()), \
                           c10d::fault::flavour_of)
