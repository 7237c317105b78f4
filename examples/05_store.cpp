// SPDX-License-Identifier: BSD-3-Clause
// The store of a group holds small facts: waits, counters, queues. It is no way to move tensors.
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "c10d/init.h"

int main() try {
  auto group = c10d::init_process_group();
  c10d::Store& store = group.store();
  const std::string me = std::to_string(group.rank());

  store.set("greeting/" + me, "hello from " + me);
  const auto arrived = store.add("arrived", 1);  // atomic: every rank sees another number
  std::printf("rank %s came %lld.\n", me.c_str(), static_cast<long long>(arrived));

  std::vector<std::string> keys;
  for (int rank = 0; rank < group.size(); ++rank)
    keys.push_back("greeting/" + std::to_string(rank));
  const auto greetings = store.multi_get(keys, std::chrono::seconds(30));  // waits for all of them
  if (greetings.back() != "hello from " + std::to_string(group.size() - 1)) return 1;

  // Exactly one rank wins: the first whose expectation (no value yet) is met.
  const auto leader = store.compare_set("leader", std::nullopt, me);
  std::printf("rank %s: the leader is %s\n", me.c_str(), leader->c_str());
  store.barrier("end", group.size());
  return store.get("leader") == *leader ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
