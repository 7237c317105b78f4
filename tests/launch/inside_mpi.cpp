// SPDX-License-Identifier: BSD-3-Clause
// A program that starts and finalises MPI itself, with groups of c10d in between: inside_mpi CASE.
// Its exit status is that of the job: MPI's launcher reports a process that does not finalise.
#include <mpi.h>

#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/error.h"
#include "c10d/init.h"
#include "c10d/mpi.h"
#include "tests/contract/interrupted.h"

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

// Ranks that the program has put into another order than those of MPI_COMM_WORLD.
MPI_Comm half_of_the_world() {
  int rank = 0;
  MPI_Comm half;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  return half;
}

void expect_ranks_of(MPI_Comm comm, const ProcessGroup& group) {
  int rank = 0, size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  expect(group.rank() == rank && group.size() == size, "not the ranks of the communicator");
  expect_sum(group);
}

// Of a program that MPI knows one thread of. The group needs no MPI, and outlives it.
void from_mpi_without_threads() {
  MPI_Init(nullptr, nullptr);
  const ProcessGroup group = c10d::from_mpi(MPI_COMM_WORLD, {.backend = "native"});
  expect_ranks_of(MPI_COMM_WORLD, group);
  MPI_Finalize();
  expect_sum(group);
}

void from_mpi_on_mpi() {
  start_mpi();
  MPI_Comm half = half_of_the_world();
  const ProcessGroup all = c10d::from_mpi(MPI_COMM_WORLD, {.backend = "mpi"});
  const ProcessGroup group = c10d::from_mpi(half, {.backend = "mpi"});
  const ProcessGroup native = c10d::from_mpi(half, {.backend = "native"});
  expect_ranks_of(MPI_COMM_WORLD, all);
  expect_ranks_of(half, group);
  expect_ranks_of(half, native);
  const ProcessGroup sub = group.split(0, -group.rank());
  expect_sum(sub);
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, half);
  expect(sum == group.size(), "a wrong sum on the program's communicator");
  MPI_Comm_free(&half);
  expect_sum(group);
  MPI_Finalize();
  expect_ended(group);
  expect_ended(sub);
}

// Where rank 0 cannot serve the store, all ranks hear it.
void from_mpi_at_a_wrong_address() {
  MPI_Init(nullptr, nullptr);
  const auto code = code_of([] { c10d::from_mpi(MPI_COMM_WORLD, {}, "192.0.2.1"); });
  expect(code != c10d::Code::timed_out, "a timeout");
  MPI_Finalize();
}

void probe() {
  const ProcessGroup group = make_group();
  for (const std::size_t count : {0u, 3u, 3'000u, 300'000u}) {
    const std::vector<float> message(count, 7);
    const std::vector next{1, 2};
    if (group.rank() == 1) {
      const c10d::Work sent = group.isend(message, 0, 5);
      group.send(next, 0, 5);
      sent.wait();
      group.barrier();
      continue;
    }
    expect(!group.iprobe(1, 6), "a message with another tag");
    for (const int peer : {c10d::kAnySource, 1}) {
      const c10d::Received seen = group.probe(peer, 5);
      expect(seen.source == 1 && seen.count == count, "not what was sent");
    }
    std::vector<float> output(count);
    expect(group.recv(output, 1, 5).count == count && output == message, "wrong elements");
    std::vector<int> second(group.probe(1, 5).count);
    group.recv(second, c10d::kAnySource, 5);
    expect(second == next, "a wrong second message");
    expect(!group.iprobe(1, 5), "a message that was received");
    group.barrier();
  }
}

// As contract.async on the other backends.
void interrupted() {
  const ProcessGroup group = make_group();
  for (const auto& shape : c10d::contract::kShapes) {
    try {
      shape.interrupted(group);
      expect(false, shape.name);
    } catch (const c10d::contract::Interrupted&) {
    }
    const std::vector<c10d::contract::Values> now(
        4, c10d::contract::Values(c10d::contract::kCount, 99));
    group.barrier();
    for (const auto& values : now)
      for (const int value : values) expect(value == 99, shape.name);
    expect_sum(group);
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::pair<std::string_view, void (*)()> kCases[] = {
      {"usual", usual},
      {"two_groups", two_groups_beside_own_communicators},
      {"outlives_main", outlives_main},
      {"pending_op", pending_op},
      {"without_threads", without_threads},
      {"from_mpi_without_threads", from_mpi_without_threads},
      {"from_mpi_on_mpi", from_mpi_on_mpi},
      {"from_mpi_at_a_wrong_address", from_mpi_at_a_wrong_address},
      {"probe", probe},
      {"interrupted", interrupted}};
  for (const auto& [name, run] : kCases)
    if (argc == 2 && name == argv[1]) {
      run();
      return 0;
    }
  return 2;
}
