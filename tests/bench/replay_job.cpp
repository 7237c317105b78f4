// SPDX-License-Identifier: BSD-3-Clause
// A job of which replay_program_test.cpp takes the flight record: six steps of four collectives and
// three messages, then either ranks that disagree, so that their group fails, or "ready" and
// nothing more.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "c10d/init.h"

int main(int argc, char** argv) {
  const bool holds = argc > 1 && std::string_view(argv[1]) == "hold";
  c10d::ProcessGroup group = c10d::init_process_group();
  std::vector<float> gradient(3000, 1);
  std::vector<std::int64_t> samples{1};
  std::vector<float> received(4000);  // more than comes
  std::vector<double> own(group.rank() == 0 ? 5 : 3), gathered(8);
  for (int step = 0; step < 6; ++step) {
    usleep(3000);
    group.all_reduce(samples);
    const auto ready = std::chrono::steady_clock::now();
    usleep(2000);
    group.all_reduce(gradient, c10d::ReduceOp::max, {.ready_at = ready});
    group.all_gather_v(gathered, own, {5, 3});
    group.broadcast(gradient, 1);
    const int peer = 1 - group.rank();
    if (group.rank() == 0)
      group.send(samples, peer, 7);
    else
      group.recv(samples, peer, 7);
    group.sendrecv(gradient, peer, received, peer);
  }
  if (holds) {
    if (group.rank() == 0) std::printf("ready %d\n", getpid());
    std::fflush(stdout);
    alarm(120);  // ends it where the test does not
    for (;;) pause();
  }
  try {
    if (group.rank() == 0)
      group.barrier();
    else
      group.all_reduce(gradient);
  } catch (const c10d::DistError&) {
    return 0;
  }
  return 1;
}
