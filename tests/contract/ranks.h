// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "c10d/init.h"
#include "tests/on_each_backend.h"

namespace c10d::contract {

// Bounds every op of a test: far above what any op needs, far below what ctest allows.
inline constexpr std::chrono::seconds kTimeout{60};

using Body = std::function<void(ProcessGroup&)>;

// Runs `body` as ranks that are threads of this process, each with its group. An exception out of
// `body` is a test failure and aborts the group, so that the other ranks end too. The test is
// skipped where it needs an op or a dtype that supports() of the backend denies.
void run_ranks(const std::string& backend, int size, const Body& body);

// Runs `task(i)` for i in [0, n), each in a thread, and joins them.
void run_threads(int n, const std::function<void(int)>& task);

// A latch that does not wait for ever for a rank that failed: after kTimeout wait() throws, which
// fails the test and ends the rank.
class Latch {
 public:
  explicit Latch(int count) : count_(count) {}
  void count_down();
  void wait();
  void arrive_and_wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_;
};

// The failure that `call` throws. A test failure when it throws none.
Failure failure_of(const std::function<void()>& call);
Code code_of(const std::function<void()>& call);

// One all_reduce that gives the right sum: the group is usable.
void expect_usable(const ProcessGroup& group);

// Whether native serves memory of the host: beside nccl it does.
bool host_is_native(const ProcessGroup& group);

// A fixture whose parameter is the backend.
class OnBackend : public testing::TestWithParam<std::string> {
 public:
  void run(int size, const Body& body) const { run_ranks(GetParam(), size, body); }
};

}  // namespace c10d::contract
