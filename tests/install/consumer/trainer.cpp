// SPDX-License-Identifier: BSD-3-Clause
// What a user of the installed trainers writes: a group, and a schedule of its ranks.
#include <cstdio>

#include "c10d/init.h"
#include "c10d/parallel/schedule.h"

int main() {
  const auto group = c10d::init_process_group({.backend = "native"});
  const auto action = c10d::parallel::action_from_string("2F0");
  const bool ok = group.size() == 1 && c10d::parallel::to_string(action) == "2F0";
  std::printf("trainers: %s\n", ok ? "ok" : "wrong");
  return ok ? 0 : 1;
}
