// SPDX-License-Identifier: BSD-3-Clause
#include "tests/contract/ranks.h"

#include <mutex>
#include <stdexcept>
#include <string_view>
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

namespace {

// Whether the backend refuses a call that makes sense, because it lacks the op or the dtype. Of the
// backends of this repository none does.
bool is_lacking(const std::string& backend, const std::exception& error) {
  const auto* const refused = dynamic_cast<const DistError*>(&error);
  if (refused == nullptr || refused->code() != Code::unsupported) return false;
  for (const OpTraits& op : kOpTraits)
    for (int d = 0; op.name == refused->failure().op && d < kDTypeCount; ++d) {
      const Query query{.op = op.kind, .dtype = static_cast<DType>(d)};
      const Support support = backend_supports(backend, query);
      if (!support && std::string_view(error.what()).find(support.reason) != std::string::npos)
        return true;
    }
  return false;
}

}  // namespace

void run_ranks(const std::string& backend, int size, const Body& body) {
  if (testing::Test::IsSkipped()) return;
  const auto store = make_hash_store(kTimeout);
  std::mutex mutex;
  std::vector<std::string> failures;
  std::string lacking;
  run_threads(size, [&](int rank) {
    ProcessGroup group;
    try {
      group = init_process_group(
          {.backend = backend, .store = store, .rank = rank, .size = size, .timeout = kTimeout});
      body(group);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        failures.push_back("rank " + std::to_string(rank) + ": " + error.what());
        if (is_lacking(backend, error)) lacking = error.what();
      }
      group.abort("another rank's part of the test failed");
    }
  });
  if (!lacking.empty()) GTEST_SKIP() << lacking;
  for (const std::string& failure : failures) ADD_FAILURE() << failure;
}

void Latch::count_down() {
  const std::lock_guard lock(mutex_);
  --count_;
  changed_.notify_all();
}

void Latch::wait() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kTimeout, [&] { return count_ <= 0; }))
    throw std::runtime_error(std::to_string(count_) + " ranks did not arrive within " +
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

void expect_usable(const ProcessGroup& group) {
  std::vector<std::int32_t> data(3, group.rank() + 1);
  group.all_reduce(data);
  const int n = group.size();
  EXPECT_EQ(data, std::vector<std::int32_t>(3, n * (n + 1) / 2));
}

bool host_is_native(const ProcessGroup& group) {
  return group.backend() == "native" || group.backend() == "nccl";
}

}  // namespace c10d::contract
