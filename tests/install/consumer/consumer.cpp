// SPDX-License-Identifier: BSD-3-Clause
// What a user of the installed library writes: two ranks as threads of one process.
// consumer [BACKEND]
#include <cstdio>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "c10d/capability.h"
#include "c10d/init.h"

namespace {

bool sums_right(const char* backend, int rank, const std::shared_ptr<c10d::Store>& store) try {
  auto group =
      c10d::init_process_group({.backend = backend, .store = store, .rank = rank, .size = 2});
  std::vector<float> values(1000, static_cast<float>(rank + 1));
  group.all_reduce(values);
  for (float value : values)
    if (value != 3) return false;
  return true;
} catch (const std::exception& error) {
  std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const char* backend = argc > 1 ? argv[1] : "native";
  auto store = c10d::make_hash_store(std::chrono::seconds(20));
  bool other = false;
  std::thread thread([&] { other = sums_right(backend, 1, store); });
  const bool own = sums_right(backend, 0, store);
  thread.join();
  std::printf("%s: %s\n", c10d::version().c_str(), own && other ? "ok" : "wrong");
  return own && other ? 0 : 1;
}
