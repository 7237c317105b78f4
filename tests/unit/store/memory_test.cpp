// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/init.h"
#include "c10d/spi/backend.h"
#include "tests/unit/store/kinds.h"
#include "tests/unit/store/limited_memory.h"

namespace c10d::test { namespace {

// Its ops run until they are told to end. Their caller has no memory left once the first has begun.
class LastMemory final : public Backend {
 public:
  explicit LastMemory(std::vector<WorkSource>& running) : running_(running) {}
  Support supports(const Query&) const override { return {}; }
  Work launch(const Call&) override {
    if (fails_) throw std::bad_alloc();
    running_.emplace_back();
    Work work = running_.back().work();
    t_most_bytes = 0;
    fails_ = true;
    return work;
  }
  std::unique_ptr<Backend> new_group(BackendContext, const std::vector<int>&) override {
    return nullptr;
  }
  void abort() noexcept override {}
  void shutdown(Deadline) override {}
  std::string description() const override { return "the last memory"; }

 private:
  std::vector<WorkSource>& running_;
  bool fails_ = false;
};

class WithoutMemory : public testing::Test {
 protected:
  static ProcessGroup group_of(std::vector<WorkSource>& running) {
    static int number = 0;
    const std::string name = "last-memory-" + std::to_string(number++);
    register_backend(
        name, [&running](const BackendContext&) { return std::make_unique<LastMemory>(running); });
    return init_process_group({.backend = name,
                               .store = make_hash_store(std::chrono::seconds(60)),
                               .rank = 0,
                               .size = 1,
                               .timeout = std::chrono::seconds(60)});
  }
  void TearDown() override { t_most_bytes = SIZE_MAX; }

  std::vector<WorkSource> running_;
  std::array<float, 2> data_{};
};

// An exception would say that the buffer is the caller's again.
TEST_F(WithoutMemory, AnAsyncOpThatHasBegunIsHandedOut) {
  ProcessGroup group = group_of(running_);
  const Work work = group.async().all_reduce(data_);
  t_most_bytes = SIZE_MAX;
  EXPECT_FALSE(work.done());
  EXPECT_TRUE(running_.at(0).complete());
  work.wait();
  group.shutdown();
  EXPECT_EQ(group.failure(), nullptr) << "nothing was pending";
}

TEST_F(WithoutMemory, ABatchEndsNotBeforeTheOpsThatHaveBegun) {
  ProcessGroup group = group_of(running_);
  Batch batch = group.batch();
  for (int i = 0; i < 2; ++i) batch.add(AllReduce{data_, data_, {}});
  const Work work = batch.submit_async();
  t_most_bytes = SIZE_MAX;
  EXPECT_FALSE(work.done());
  ASSERT_EQ(running_.size(), 1u);
  EXPECT_TRUE(running_[0].complete());
  ASSERT_TRUE(work.done());
  ASSERT_NE(work.failure(), nullptr);
  EXPECT_EQ(work.failure()->code, Code::out_of_resources) << work.failure()->message;
}

// Serves with so many descriptors left, or is told that these are too few.
[[noreturn]] void serve_with(int descriptors) {
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(next) + static_cast<rlim_t>(descriptors);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  try {
    make_tcp_store({.server = true, .timeout = std::chrono::seconds(60)});
  } catch (const DistError&) {
  }
  ::_exit(0);
}

// libuv would end a process whose first loop gets no pipe. Which number that is depends on what the
// process has inherited.
TEST(TcpStoreDeathTest, AServerWithoutDescriptorsDoesNotEndItsProcess) {
  if (std::string_view(C10D_SANITIZE).find("undefined") != std::string_view::npos)
    GTEST_SKIP() << "the sanitizer itself opens a pipe to look at objects";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int descriptors = 0; descriptors < 12; ++descriptors)
    EXPECT_EXIT(serve_with(descriptors), testing::ExitedWithCode(0), "") << descriptors;
}

TEST(TcpStore, ACallWithoutMemoryForItsAnswerLeavesTheStoreToLaterOnes) {
  const auto server = tcp_server();
  const std::string large(1 << 20, 'x');
  server->set("large", large);
  const auto client = make_tcp_store(client_of(*server));
  t_most_bytes = large.size() / 2;
  std::optional<Failure> failure;
  try {
    client->get("large");
  } catch (const DistError& error) {
    failure = error.failure();
  }
  t_most_bytes = SIZE_MAX;
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Code::out_of_resources);
  EXPECT_NE(failure->message.find("raise ulimit -v"), std::string::npos) << failure->message;
  EXPECT_EQ(client->get("large"), large);
  EXPECT_EQ(client->add("n", 1), 1);
}

}}  // namespace c10d::test
