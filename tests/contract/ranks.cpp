// SPDX-License-Identifier: BSD-3-Clause
#include "tests/contract/ranks.h"

#include <stdexcept>
#include <thread>
#include <vector>

namespace c10d { namespace {

C10D_SKIP_OTHER_BACKENDS();

}}  // namespace c10d

namespace c10d::contract {

void run_threads(int n, const std::function<void(int)>& task) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back(task, i);
  for (std::thread& thread : threads) thread.join();
}

void run_ranks(const std::string& backend, int size, const Body& body) {
  const auto store = make_hash_store(kTimeout);
  run_threads(size, [&](int rank) {
    ProcessGroup group;
    try {
      group = init_process_group(
          {.backend = backend, .store = store, .rank = rank, .size = size, .timeout = kTimeout});
      body(group);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
      group.abort("another rank's part of the test failed");
    }
  });
}

void Latch::count_down() {
  const std::lock_guard lock(mutex_);
  --count_;
  changed_.notify_all();
}

void Latch::wait() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kTimeout, [&] { return count_ <= 0; }))
    throw std::runtime_error(std::to_string(count_) + " ranks did not come within " +
                             std::to_string(kTimeout.count()) + " s");
}

void Latch::arrive_and_wait() {
  count_down();
  wait();
}

Failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const DistError& error) {
    return error.failure();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "no DistError: " << error.what();
    return {.code = Code::backend_error, .message = "none"};
  }
  ADD_FAILURE() << "no failure where one was expected";
  return {.code = Code::backend_error, .message = "none"};
}

Code code_of(const std::function<void()>& call) { return failure_of(call).code; }

void expect_usable(ProcessGroup& group) {
  std::vector<std::int32_t> data(3, group.rank() + 1);
  group.all_reduce(data);
  const int n = group.size();
  EXPECT_EQ(data, std::vector<std::int32_t>(3, n * (n + 1) / 2));
}

}  // namespace c10d::contract
