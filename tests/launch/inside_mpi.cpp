// SPDX-License-Identifier: BSD-3-Clause
// A program that starts and finalises MPI itself, with groups of c10d in between: inside_mpi CASE.
// Its exit status is that of the job: MPI's launcher reports a process that does not finalise.
#include <mpi.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "c10d/error.h"
#include "c10d/init.h"

namespace {

using c10d::ProcessGroup;

ProcessGroup global;
std::vector<float> pending(1 << 16, 1);

void expect(bool right, const char* what) {
  if (right) return;
  std::printf("inside_mpi: %s\n", what);
  std::fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

void expect_sum(const ProcessGroup& group) {
  expect(group.all_reduce(group.rank() + 1) == group.size() * (group.size() + 1) / 2, "wrong sum");
}

template <class Call>
c10d::Code code_of(const Call& call) {
  try {
    call();
  } catch (const c10d::DistError& error) {
    return error.code();
  }
  expect(false, "it did not throw");
  return {};
}

void expect_ended(const ProcessGroup& group) {
  int finalised = 0;
  MPI_Finalized(&finalised);
  expect(finalised != 0, "MPI runs");
  if (code_of([&] { group.barrier(); }) == c10d::Code::destroyed) return;
  std::puts("inside_mpi: a group is alive after MPI_Finalize");
  std::exit(1);
}

ProcessGroup make_group() { return c10d::init_process_group({.backend = "mpi"}); }

void start_mpi() {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
}

void usual() {
  start_mpi();
  const ProcessGroup group = make_group();
  expect_sum(group);
  MPI_Finalize();
  expect_ended(group);
}

void two_groups_beside_own_communicators() {
  start_mpi();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm own;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &own);
  const ProcessGroup group = make_group();
  const ProcessGroup sub = group.new_group({1, 0});
  expect_sum(group);
  expect_sum(sub);
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, own);
  expect(sum == group.size(), "a wrong sum on the program's communicator");
  MPI_Comm_free(&own);
  MPI_Finalize();
  expect_ended(group);
  expect_ended(sub);
}

void outlives_main() {
  start_mpi();
  global = make_group();
  expect_sum(global);
  MPI_Finalize();
}

void pending_op() {
  start_mpi();
  global = make_group();
  global.async().all_reduce(pending).detach();
  MPI_Finalize();
  expect_ended(global);
}

// MPI_Init gives no threads, which c10d needs: an error, and MPI is as it was.
void without_threads() {
  MPI_Init(nullptr, nullptr);
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_SERIALIZED)
    expect(code_of(make_group) == c10d::Code::unsupported, "not refused as unsupported");
  else
    expect_sum(make_group());
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  expect(sum == 2, "a wrong sum of MPI");
  MPI_Finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc == 2 ? argv[1] : "";
  if (name == "usual")
    usual();
  else if (name == "two_groups")
    two_groups_beside_own_communicators();
  else if (name == "outlives_main")
    outlives_main();
  else if (name == "pending_op")
    pending_op();
  else if (name == "without_threads")
    without_threads();
  else
    return 2;
}
