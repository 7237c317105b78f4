// SPDX-License-Identifier: BSD-3-Clause
// NCCL is there and a GPU is not: no_gpu_test REASON. Then c10d does not open NCCL at all, which
// would start threads and a listener at its first call.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/contract/ranks.h"

namespace c10d::nccl_test { namespace {

namespace fs = std::filesystem;

std::string reason;

std::size_t threads() {
  const fs::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

// The inodes of the sockets of this process.
std::set<std::string> sockets() {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // that of the iterator itself
    const std::string target = fs::read_symlink(entry.path(), gone);
    if (target.starts_with("socket:[")) found.insert(target.substr(8, target.size() - 9));
  }
  return found;
}

std::size_t listeners() {
  const std::set<std::string> own = sockets();
  std::size_t count = 0;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // the titles
    while (std::getline(file, line)) {
      std::istringstream words(line);
      const std::vector<std::string> row{std::istream_iterator<std::string>(words), {}};
      if (row.size() > 9 && row[3] == "0A" && own.contains(row[9])) ++count;
    }
  }
  return count;
}

// Before anything asks for backends.
std::size_t threads_at_start = 0;
std::set<std::string> sockets_at_start;

TEST(NoGpu, IsANamedErrorSoonAndLeavesNothing) {
  constexpr int kRanks = 2;
  const auto start = std::chrono::steady_clock::now();
  const std::shared_ptr<Store> store = make_hash_store(contract::kTimeout);
  contract::run_threads(kRanks, [&](int rank) {
    const Failure failure = contract::failure_of([&] {
      init_process_group({.backend = "nccl",
                          .store = store,
                          .rank = rank,
                          .size = kRanks,
                          .timeout = contract::kTimeout});
    });
    EXPECT_EQ(failure.code, Code::unsupported);
    EXPECT_THAT(failure.message, testing::HasSubstr("backend 'nccl' is not available"));
    EXPECT_THAT(failure.message, testing::HasSubstr(reason));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  // A thread that was joined is in /proc for a moment more.
  const std::size_t expected = threads_at_start + 1;  // all groups of a process share one
  const auto end = std::chrono::steady_clock::now() + contract::kTimeout;
  while (threads() != expected && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(threads(), expected);
  EXPECT_EQ(sockets(), sockets_at_start);
  EXPECT_EQ(listeners(), 0U);
}

}}  // namespace c10d::nccl_test

int main(int argc, char** argv) {
  using namespace c10d::nccl_test;  // NOLINT(google-build-using-namespace)
  // A sanitizer starts one of its own beside the first.
  pid_t first = 0;
  std::thread([&first] { first = gettid(); }).join();
  while (std::filesystem::exists("/proc/self/task/" + std::to_string(first)))
    std::this_thread::yield();  // for a moment
  threads_at_start = threads();
  sockets_at_start = sockets();
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  reason = argv[1];
  return RUN_ALL_TESTS();
}
