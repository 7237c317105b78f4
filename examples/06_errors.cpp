// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong is told: a mistake of one's own before anything is sent, a disagreement between
// ranks on every one of them, with both calls in the message.
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include "c10d/init.h"

int main() try {
  auto group = c10d::init_process_group();
  std::vector<float> values(100, 1);

  try {  // output and input overlap in part
    group.all_reduce(std::span(values).subspan(1, 50), std::span(values).subspan(0, 50));
    return 1;
  } catch (const c10d::InvalidArgument& mistake) {
    std::printf("rank %d, own mistake: %s\n", group.rank(), mistake.what());
  }
  group.all_reduce(values);  // the group is intact
  if (group.size() == 1) return 0;

  try {  // rank 0 sums 100 elements, the others 99
    group.all_reduce(std::span(values).first(group.rank() == 0 ? 100 : 99));
    return 1;
  } catch (const c10d::DistError& error) {
    std::printf("rank %d, on every rank: %s\n", group.rank(), error.what());
    if (error.reason() != c10d::Reason::mismatch) return 1;
  }
  try {  // from now on every call says why the group is broken
    group.barrier();
    return 1;
  } catch (const c10d::DistError& error) {
    return error.reason() == c10d::Reason::mismatch ? 0 : 1;
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
