// SPDX-License-Identifier: BSD-3-Clause
// Point to point: a value travels once around the ring, and every rank adds itself to it.
#include <cstdio>
#include <exception>
#include <span>

#include "c10d/init.h"

int main() try {
  auto group = c10d::init_process_group();
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();

  int sum = group.rank();
  int travelling = group.rank();
  for (int step = 1; step < group.size(); ++step) {
    int arrived = 0;
    // Sends and receives at the same time, so no order of the ranks can block the ring.
    group.sendrecv(std::span(&travelling, 1), next, std::span(&arrived, 1), previous);
    sum += arrived;
    travelling = arrived;
  }
  std::printf("rank %d: the ring adds up to %d\n", group.rank(), sum);
  return sum == group.size() * (group.size() - 1) / 2 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
