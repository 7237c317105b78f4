// SPDX-License-Identifier: BSD-3-Clause
// Memory of the group. Ops of native on it copy less, and ranks of a host can read each other's.
#include <cstdio>
#include <exception>

#include "c10d/init.h"

int main() try {
  auto group = c10d::init_process_group();
  const c10d::Buffer<float> gradient = group.allocate<float>(1 << 20);  // collective; zeroed
  for (float& value : gradient) value = static_cast<float>(group.rank() + 1);
  group.barrier();  // all ranks have written

  // Null where ranks do not share memory: on other hosts, and with other backends.
  const int next = (group.rank() + 1) % group.size();
  if (const float* theirs = gradient.peer_data(next)) {
    std::printf("rank %d sees %g in the memory of rank %d\n", group.rank(), theirs[0], next);
    if (theirs[0] != static_cast<float>(next + 1)) return 1;
  }
  group.barrier();  // all ranks have read

  group.all_reduce(gradient);  // a Buffer is a buffer as a vector is
  const int expected = group.size() * (group.size() + 1) / 2;
  return gradient[gradient.size() - 1] == static_cast<float>(expected) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
