// SPDX-License-Identifier: BSD-3-Clause
// In a program that uses MPI: a group of the ranks of a communicator, over shared memory, beside
// the program's own messages.   mpirun -n 4 18_inside_mpi
#include <mpi.h>

#include <cstdio>
#include <vector>

#include "c10d/launch.h"
#include "c10d/mpi.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = c10d::run_main(argc, argv, [] {
    int world_rank = 0, world_size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    MPI_Comm half;  // even ranks, odd ranks
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &half);

    const c10d::ProcessGroup group = c10d::from_mpi(half, {.backend = "native"});
    std::vector<double> values(1 << 16, 1.0);
    group.all_reduce(values);  // c10d

    double all = values[0];
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);  // MPI
    const int even = (world_size + 1) / 2, odd = world_size / 2;
    std::printf("rank %d of %d in its half: %g, all: %g\n", group.rank(), group.size(), values[0],
                all);
    MPI_Comm_free(&half);
    return all == even * even + odd * odd ? 0 : 1;
  });
  MPI_Finalize();
  return code;
}
