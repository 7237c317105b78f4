// SPDX-License-Identifier: BSD-3-Clause
// Deadlines: of a wait, of one call, of a group; and abort(), which ends the waiting of all ranks.
#include <chrono>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "c10d/init.h"

using namespace std::chrono_literals;
int main() try {
  auto group = c10d::init_process_group({.timeout = 1min});  // of every call that gives none
  if (group.size() == 1) return 0;
  auto other_group = group.split(0);
  const bool late = group.rank() == 0;
  std::vector<std::string> others;  // keys
  for (int rank = 1; rank < group.size(); ++rank) others.push_back(std::to_string(rank));

  // wait(timeout) gives up the wait, not the op: the group stays intact.
  int message = 7;
  if (late) {
    group.store().wait(others, 1min);  // until all of them have lost patience
    for (int rank = 1; rank < group.size(); ++rank) group.send(std::span(&message, 1), rank);
  } else {
    auto work = group.irecv(std::span(&message, 1), 0);
    try {
      work.wait(10ms);
      return 1;
    } catch (const c10d::DistTimeoutError&) {
      group.store().set(std::to_string(group.rank()), "waited");
    }
    work.wait();
  }

  // The deadline of a call: it names who did not come, and breaks the group on every rank.
  if (late) group.store().get("gave up", 1min);
  try {
    group.barrier({.timeout = 100ms});
    return 1;
  } catch (const c10d::DistTimeoutError& error) {
    std::printf("rank %d: %s\n", group.rank(), error.what());
    if (error.failure().rank != 0) return 1;
  }
  if (group.rank() == 1) group.store().set("gave up", "now");

  // abort() ends the waiting of all ranks, and tells them why.
  if (late) other_group.abort("the input is empty");
  try {
    other_group.barrier();
    return 1;
  } catch (const c10d::DistError& error) {
    std::printf("rank %d: %s\n", group.rank(), error.what());
    return error.reason() == c10d::Reason::aborted ? 0 : 1;
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
