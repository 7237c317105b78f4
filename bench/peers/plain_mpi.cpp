// SPDX-License-Identifier: BSD-3-Clause
// A plain loop around MPI_Allreduce: mpirun -n 2 plain_mpi_FLAVOUR SECONDS BYTES...
#include <mpi.h>

#include "bench/peers/plain_loop.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  plain::loop_over_sizes(
      argc, argv, rank,
      [](const float* input, float* output, std::size_t count) {
        MPI_Allreduce(input, output, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      },
      [](double* values, std::size_t count) {
        MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_DOUBLE, MPI_MAX,
                      MPI_COMM_WORLD);
      },
      [] { MPI_Barrier(MPI_COMM_WORLD); });
  MPI_Finalize();
  return 0;
}
