// SPDX-License-Identifier: BSD-3-Clause
// A program may make groups and end them as long as it runs: they take nothing along.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "tests/contract/held_port.h"
#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

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

// A wrapped library may close a little later: until none has more than `most` more than before.
Held held_in_the_end(const Held& before, std::ptrdiff_t most) {
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  for (;;) {
    const Held now = held();
    if (now.descriptors - before.descriptors <= most && now.threads - before.threads <= most &&
        now.mappings - before.mappings <= most)
      return now;
    if (std::chrono::steady_clock::now() >= end) return now;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST_P(Leak, GroupsThatEndedLeaveNoDescriptorThreadOrMapping) {
  constexpr int kGroups = 20, kMost = kGroups / 2;  // one each per group would be 40
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
    const Held after = held_in_the_end(before, kMost);
    world.barrier({.timeout = 2 * kTimeout});
    EXPECT_LE(after.descriptors, before.descriptors + kMost);
    EXPECT_LE(after.threads, before.threads + kMost);
    EXPECT_LE(after.mappings, before.mappings + kMost);
  });
}

// All at one address: a port that stayed taken would end the next one.
TEST_P(Leak, AHundredWorldsThatEndedLeaveNoDescriptorThreadMappingOrPort) {
  constexpr int kWorlds = 100, kMost = kWorlds / 2;  // one each per world would be 200
  const HeldPort port;
  const auto make_and_end = [&](int worlds) {
    for (int i = 0; i < worlds; ++i)
      run_threads(2, [&](int rank) {
        try {
          ProcessGroup world = init_process_group({.backend = GetParam(),
                                                   .url = port.url(),
                                                   .rank = rank,
                                                   .size = 2,
                                                   .timeout = kTimeout});
          expect_usable(world);
          if (i % 2 == 0) world.shutdown();
        } catch (const std::exception& error) {
          ADD_FAILURE() << "world " << i << ", rank " << rank << ": " << error.what();
        }
      });
  };
  make_and_end(5);  // as above
  const Held before = held();
  make_and_end(kWorlds);
  const Held after = held_in_the_end(before, kMost);
  EXPECT_LE(after.descriptors, before.descriptors + kMost);
  EXPECT_LE(after.threads, before.threads + kMost);
  EXPECT_LE(after.mappings, before.mappings + kMost);
}

C10D_ON_EACH_BACKEND(Leak);

}}  // namespace c10d::contract
