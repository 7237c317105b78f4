// SPDX-License-Identifier: BSD-3-Clause
// A program may make groups and end them as long as it runs: they take nothing along.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/contract/ranks.h"

namespace c10d::contract {
namespace {

class Leak : public OnBackend {};

// What this process holds.
struct Held {
  std::ptrdiff_t descriptors = 0, threads = 0, mappings = 0;  // of our shared memory
};

std::ptrdiff_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

Held held() {
  Held all{entries_of("/proc/self/fd"), entries_of("/proc/self/task")};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    all.mappings += line.find("memfd:c10d") != line.npos ? 1 : 0;
  return all;
}

TEST_P(Leak, GroupsThatEndedLeaveNoDescriptorThreadOrMapping) {
  constexpr int kGroups = 60;
  run(2, [](ProcessGroup& world) {
    const auto make_and_end = [&](int groups) {
      for (int i = 0; i < groups; ++i) {
        ProcessGroup group = world.new_group({0, 1});
        expect_usable(group);
        if (i % 2 == 0) group.shutdown();
      }
      world.barrier();
    };
    make_and_end(5);  // what the process has only one of is there from now on
    const Held before = held();
    world.barrier();
    make_and_end(kGroups);
    const Held after = held();
    world.barrier();
    // One each per group would be twice that. A library below may close a little later.
    constexpr int kLate = kGroups / 2;
    EXPECT_LT(after.descriptors, before.descriptors + kLate);
    EXPECT_LT(after.threads, before.threads + kLate);
    EXPECT_LT(after.mappings, before.mappings + kLate);
  });
}

C10D_ON_EACH_BACKEND(Leak);

}  // namespace
}  // namespace c10d::contract
